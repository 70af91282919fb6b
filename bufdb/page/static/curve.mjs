// The curve: occupied bytes over program order, stacked by group. uPlot draws axes and areas; it is
// fed one instant per pixel, since a hundred thousand steps stutter.

/** @import {Scene} from "./scene.mjs" */
import { instants } from "./sample.mjs";
import { humanBytes } from "./text.mjs";

/**
 * @typedef {{read: (step: number) => void, leave: () => void, choose: (step: number) => void,
 *   select: (t0: number, t1: number) => void, wheel: (event: WheelEvent, across: number, up:
 *   number) => void}} CurveActs
 */

/** Distances of ticks: 1, 2, 5, 10, … */
export const TICKS = [1, 2, 5]
  .flatMap(digit => Array.from({ length: 10 }, (_, power) => digit * 10 ** power))
  .sort((a, b) => a - b);
const BYTE_TICKS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Axes as both plots of the page have them. @param {{dim: string, rule: string}} colours
 *  @param {boolean} isNarrow @returns {import("uplot").Axis[]} */
export function axes({ dim, rule }, isNarrow) {
  const line = { stroke: rule, width: 1 };
  const font = "12px system-ui, sans-serif";
  const label = { labelFont: font, labelSize: 16, labelGap: 0 };
  const common = { stroke: dim, font, grid: line, ticks: { ...line, size: 4 }, ...label };
  return [
    {
      ...common,
      label: "step of the program",
      size: 24,
      gap: 2,
      space: isNarrow ? 44 : 60,
      incrs: TICKS,
    },
    {
      ...common,
      label: "occupied",
      size: isNarrow ? 60 : 70,
      gap: 3,
      space: 34,
      incrs: BYTE_TICKS,
      values: (_, ticks) => ticks.map(tick => humanBytes(tick).replace(/\.00? /, " ")),
    },
  ];
}

/** Areas one upon the other. @param {string[]} fills the lowest first */
export function areas(fills) {
  const paths = /** @type {import("uplot").Series.PathBuilder} */ (
    uPlot.paths.stepped?.({ align: 1 })
  );
  return {
    series: [
      {},
      ...fills.map(color => ({ fill: color, width: 0, points: { show: false }, paths })),
    ],
    bands: fills
      .slice(1)
      .map((_, i) => /** @type {import("uplot").Band} */ ({ series: [i + 2, i + 1] })),
  };
}

export class Curve {
  /** @param {HTMLElement} host @param {CurveActs} acts */
  constructor(host, acts) {
    this.host = host;
    this.acts = acts;
    /** @type {import("uplot") | null} */
    this.plot = null;
    /** @type {Scene | null} */
    this.scene = null;
  }

  /** The plot anew: another module, colouring, theme or width. @param {Scene} scene */
  build(scene) {
    this.plot?.destroy();
    this.scene = scene;
    const { colours, groups } = scene;
    const width = this.host.clientWidth;
    const isNarrow = innerWidth < 640;
    const step = (/** @type {number} */ left) => this.#stepAt(left);
    this.plot = new uPlot(
      {
        width,
        height: isNarrow ? 150 : 190,
        padding: [8, 28, 0, 0],
        legend: { show: false },
        cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false }, y: false },
        scales: {
          x: {
            time: false,
            auto: false,
            range: () => (this.scene ? [this.scene.view.t0, this.scene.view.t1] : [0, 1]),
          },
          // A tenth of room above the peak, for its mark.
          y: { range: (_, low, high) => [Math.min(0, low), Math.max(high, 1) * 1.12] },
        },
        axes: axes(colours, isNarrow),
        ...areas([colours.fixed, ...groups.names.map((_, group) => colours.groups[group])]),
        hooks: {
          draw: [() => this.#marks()],
          setSelect: [plot => this.#selected(plot)],
          setCursor: [
            plot => {
              if ((plot.cursor.left ?? -1) >= 0) this.acts.read(step(plot.cursor.left ?? 0));
              else this.acts.leave();
            },
          ],
        },
      },
      this.#data(),
      this.host,
    );
    const { over } = this.plot;
    over.addEventListener("click", event => this.acts.choose(step(event.offsetX)));
    over.addEventListener(
      "wheel",
      event => this.acts.wheel(event, event.offsetX / over.clientWidth, 0),
      { passive: false },
    );
  }

  /** The same plot with another window or instant. @param {Scene} scene */
  draw(scene) {
    this.scene = scene;
    this.plot?.setData(this.#data());
  }

  /** Where the plot lies within its host, in CSS pixels: the map takes the same place. */
  get place() {
    const box = this.plot?.bbox;
    const { left, width } = box ?? { left: 0, width: 0 };
    return { left: left / devicePixelRatio, width: width / devicePixelRatio };
  }

  /** @param {number} left */
  #stepAt(left) {
    if (!this.plot || !this.scene) return 0;
    return Math.max(
      0,
      Math.min(this.scene.model.steps - 1, Math.floor(this.plot.posToVal(left, "x"))),
    );
  }

  /** @param {import("uplot")} plot */
  #selected(plot) {
    const { left, width } = plot.select;
    if (width > 3) this.acts.select(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  /** @returns {import("uplot").AlignedData} */
  #data() {
    if (!this.scene) return [[]];
    const { model, view, stack } = this.scene;
    const width = Math.max(100, this.host.clientWidth);
    const { edges, steps } = instants(model.totals, view.t0, view.t1, width);
    const of = (/** @type {Float64Array} */ bytes) => Array.from(steps, step => bytes[step]);
    // The last instant reaches to the end of the window.
    const xs = [...edges, view.t1];
    const rows = [model.fixed, ...stack].map(of);
    return [xs, ...rows.map(row => [...row, row[row.length - 1]])];
  }

  /** The peaks, the limit and the chosen step. */
  #marks() {
    const { plot, scene } = this;
    if (!plot || !scene) return;
    const { ctx, bbox } = plot;
    const { model, colours } = scene;
    const ratio = devicePixelRatio;
    const x = (/** @type {number} */ step) => plot.valToPos(step + 0.5, "x", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = ctx.strokeStyle = colours.mark;
    ctx.lineWidth = ratio;
    for (const { step, bytes } of model.peaks) {
      const left = x(step);
      const tip = plot.valToPos(bytes, "y", true) - ratio;
      const half = 5 * ratio;
      ctx.beginPath();
      ctx.moveTo(left - half, tip - 8 * ratio);
      ctx.lineTo(left + half, tip - 8 * ratio);
      ctx.lineTo(left, tip);
      ctx.closePath();
      if (step === model.peakStep) ctx.fill();
      else ctx.stroke();
    }
    if (model.row.limit_bytes !== null) {
      const y = plot.valToPos(model.row.limit_bytes, "y", true);
      ctx.strokeStyle = colours.ink;
      ctx.strokeRect(bbox.left - ratio, y, bbox.width + 2 * ratio, 0);
    }
    ctx.strokeStyle = colours.mark;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x(scene.step), bbox.top);
    ctx.lineTo(x(scene.step), bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}
