// What processes hold over time: the arrays that are alive, and the program that runs upon them.

import { readColours } from "./colours.mjs";
import { areas, axes, TICKS } from "./curve.mjs";
import { byId, fill, make, nameOf, swatch } from "./dom.mjs";

/**
 * @typedef {{heading: string, seconds: number[], alive: number[], running: (number | null)[],
 *   limit: number | null, program: string | null, sentences: string[]}} Course
 */

const ALIVE = 0;
const RUNNING = 5;
/** Units of time: from so many seconds on, their name and their seconds. */
const CLOCKS = /** @type {[number, string, number][]} */ ([
  [3 * 3600, "h", 3600],
  [180, "min", 60],
  [0, "s", 1],
]);

/** The unit of an axis that ends at a time. @param {number} last seconds */
export function unitOf(last) {
  const [, name, seconds] = CLOCKS.find(([least]) => last >= least) ?? CLOCKS[2];
  return { name, seconds };
}

/** Steps of the curve with an end for the last one, which has no next. @param {Course} course */
export function stepped({ seconds, alive, running }) {
  const [first, last] = [seconds[0], seconds[seconds.length - 1]];
  const end = last + Math.max((last - first) * 0.02, 1e-3);
  const tops = alive.map((bytes, i) => Math.max(bytes, running[i] ?? 0));
  const held = (/** @type {number[]} */ row) => [...row, row[row.length - 1]];
  return [[...seconds, end], held(alive), held(tops)];
}

export class Courses {
  /** @param {Course[]} courses @param {number} otherCount processes that are left out */
  constructor(courses, otherCount) {
    this.courses = courses;
    /** @type {import("uplot")[]} */
    this.plots = [];
    this.hosts = courses.map(({ sentences }) =>
      make("div", { class: "course", role: "img", "aria-label": sentences.join("; ") }),
    );
    const parts = courses.flatMap((course, i) => this.#parts(course, this.hosts[i]));
    if (otherCount) {
      const command = make("code", {}, "bufdb show --process NAME");
      parts.push(make("p", {}, `These hold the most; ${otherCount} more: `, command));
    }
    fill(byId("courses"), ...parts);
  }

  /** @param {Course} course @param {HTMLElement} host */
  #parts({ heading, limit, program, sentences }, host) {
    const legend = make("p", { class: "keys" }, swatch(ALIVE), " arrays that are alive ");
    if (program) {
      legend.append(
        swatch(RUNNING),
        " in addition while ",
        nameOf(program),
        " runs, at the least ",
      );
    }
    if (limit !== null) legend.append(make("span", { class: "edge" }), " limit");
    return [
      make("h3", {}, nameOf(heading)),
      host,
      legend,
      make("ul", {}, ...sentences.map(text => make("li", {}, nameOf(text)))),
    ];
  }

  /** All plots anew: another theme or width. */
  draw() {
    for (const plot of this.plots) plot.destroy();
    this.plots = this.courses.map((course, i) => this.#plot(course, this.hosts[i]));
  }

  /** @param {Course} course @param {HTMLElement} host */
  #plot(course, host) {
    const colours = readColours();
    const isNarrow = innerWidth < 640;
    const data = stepped(course);
    const [times, alive, tops] = data;
    const unit = unitOf(times[times.length - 1]);
    const [across, up] = axes(colours, isNarrow);
    const { limit } = course;
    return new uPlot(
      {
        width: host.clientWidth,
        height: isNarrow ? 150 : 190,
        padding: [8, 28, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: [times[0], times[times.length - 1]] },
          y: { range: (_, __, high) => [0, Math.max(high, limit ?? 0, 1) * 1.08] },
        },
        axes: [
          {
            ...across,
            label: "time since the process began to be watched",
            incrs: TICKS.map(tick => tick * unit.seconds),
            values: (_, ticks) => ticks.map(tick => `${tick / unit.seconds} ${unit.name}`),
          },
          { ...up, label: "on the device" },
        ],
        ...areas([colours.groups[ALIVE], colours.groups[RUNNING]]),
        hooks: {
          draw: [
            plot => {
              if (limit === null) return;
              const { ctx, bbox } = plot;
              ctx.strokeStyle = colours.ink;
              ctx.lineWidth = 2 * devicePixelRatio;
              ctx.strokeRect(bbox.left, plot.valToPos(limit, "y", true), bbox.width, 0);
            },
          ],
        },
      },
      /** @type {import("uplot").AlignedData} */ ([times, alive, tops]),
      host,
    );
  }
}
