// Two runs compared: what changed of each function, both curves on one scale, and the parts of a
// change, which add up to it. All figures are those of `bufdb diff`.

/** @import {Line} from "./attribution.mjs" */
/** @import {Model, ModuleRow, Table} from "./model.mjs" */
import { changeBar, fillParts, told, toldChange } from "./attribution.mjs";
import { readColours } from "./colours.mjs";
import { copyButtons } from "./copy.mjs";
import { areas, axes } from "./curve.mjs";
import { button, byId, fill, nameOf } from "./dom.mjs";
import { instants } from "./sample.mjs";
import { toCsv } from "./csv.mjs";
import { fillTable } from "./table.mjs";
import { humanBytes, percent } from "./text.mjs";
import { needOf } from "./words.mjs";

/**
 * @typedef {{base: string, new: string, command: string, figures: Table, parts: {[key: string]:
 *   Table},   pairs: [place: number, base: number | null, new: number | null][]}} Diff `pairs` as
 *   rows of the modules
 */
/**
 * @typedef {{load: (row: ModuleRow) => Promise<Model | null>, open: (row: ModuleRow) => void}}
 *   DiffActs
 */

const FIRST_PAIRS = 12;

/** The rows of a table by column. @param {Table} table @returns {Line[]} */
export function byColumn({ columns, rows }) {
  return rows.map(row => Object.fromEntries(columns.map(([name], i) => [name, row[i]])));
}

export class Comparison {
  /** @param {Diff} diff @param {ModuleRow[]} modules @param {DiffActs} acts */
  constructor(diff, modules, acts) {
    this.diff = diff;
    this.modules = modules;
    this.acts = acts;
    this.peaks = byColumn(diff.figures).filter(
      ({ figure, part }) => figure === "peak" && part === null,
    );
    this.isAll = false;
    this.key = Object.keys(diff.parts)[0];
    /** @type {number | null} */
    this.place = null;
    /** @type {import("uplot") | null} */
    this.plot = null;
    /** The row of the module of the new side with the largest need, which is shown first. */
    this.first = this.#first();
    byId("diff-section").hidden = false;
    fill(byId("diff-title"), "Compared: ", nameOf(diff.base), " → ", nameOf(diff.new));
    fill(
      byId("diff-copy"),
      copyButtons(() => toCsv(diff.figures.columns, diff.figures.rows), diff.command),
    );
    this.showPairs();
    if (this.peaks.length) this.choose(this.peaks[0].place);
  }

  #first() {
    const rows = this.diff.pairs.flatMap(([, , row]) => (row === null ? [] : [row]));
    const need = (/** @type {number} */ row) => needOf(this.modules[row]) ?? -1;
    return rows.sort((a, b) => need(b) - need(a) || a - b)[0];
  }

  /** One row for each function and memory space, the largest change first. */
  showPairs() {
    const shown = this.isAll ? this.peaks : this.peaks.slice(0, FIRST_PAIRS);
    const largest = Math.max(...this.peaks.map(({ delta_bytes: change }) => Math.abs(change ?? 0)));
    fillTable(
      /** @type {HTMLTableElement} */ (byId("pairs")),
      [
        { title: "function" },
        { title: "space", isWide: true },
        { title: "base peak", kind: "figure", isWide: true },
        { title: "new peak", kind: "figure" },
        { title: "change", kind: "figure" },
        { title: "", kind: "picture" },
      ],
      shown.map(row => ({
        cells: [
          row.function_name,
          row.memory_space_name ?? (row.color === null ? "" : `color ${row.color}`),
          ...told(row),
          toldChange(row.delta_bytes),
          row.delta_bytes === null
            ? nameOf(row.unknown_reason ?? "on one side only")
            : changeBar(row.delta_bytes, largest),
        ],
        act: () => this.choose(row.place),
        isChosen: row.place === this.place,
      })),
    );
    const rest = this.peaks.length - shown.length;
    fill(
      byId("pairs-more"),
      rest > 0
        ? button(`show ${rest} more`, () => {
            this.isAll = true;
            this.showPairs();
          })
        : null,
      this.diff.figures.is_cut ? " The page has what changed most; the command gives all." : null,
    );
  }

  /** Another pair. @param {number} place */
  async choose(place) {
    this.place = place;
    this.showPairs();
    this.showParts();
    const [, base, now] = this.diff.pairs.find(([each]) => each === place) ?? [place, null, null];
    const sides = [base, now].map(row => (row === null ? null : this.modules[row]));
    const models = await Promise.all(sides.map(row => (row === null ? null : this.acts.load(row))));
    if (this.place !== place) return;
    this.models = models;
    this.draw();
    fill(
      byId("diff-open"),
      ...sides.flatMap((row, i) =>
        row === null || row.slot === null
          ? []
          : [
              button(`open ${i ? "new" : "base"}: ${row.run} › ${row.function}`, () =>
                this.acts.open(row),
              ),
            ],
      ),
    );
  }

  /** The parts of the chosen change, ending in their sum. */
  showParts() {
    const { key, place } = this;
    const table = this.diff.parts[key];
    const peak = this.peaks.find(each => each.place === place);
    const parts = table ? byColumn(table).filter(each => each.place === place) : [];
    fill(
      byId("diff-keys"),
      "by ",
      ...Object.keys(this.diff.parts).map(each => {
        const choice = button(each, () => {
          this.key = each;
          this.showParts();
        });
        choice.setAttribute("aria-pressed", String(each === key));
        return choice;
      }),
    );
    fillParts(/** @type {HTMLTableElement} */ (byId("parts")), byId("parts-bars"), parts);
    fill(
      byId("parts-note"),
      parts.length
        ? null
        : peak?.delta_bytes === 0
          ? "No change of the peak."
          : "No parts: the peak of one side is unknown.",
    );
  }

  /**
   * Both curves, each over its own program stretched to one width: schedules differ, so that no
   * step of one is  one of the other.
   */
  draw() {
    const host = byId("diff-curve");
    const [base, now] = this.models ?? [];
    const width = host.clientWidth;
    this.plot?.destroy();
    this.plot = null;
    const drawn = [now, base].map(model => (model?.hasPeak ? model : null));
    host.hidden = !drawn.some(Boolean);
    fill(
      byId("diff-said"),
      ...drawn.map(
        (model, i) =>
          `${i ? "base (line)" : "new (area)"}: ${
            model ? `${humanBytes(model.totals[model.peakStep])}, ${model.steps} steps` : "no curve"
          }. `,
      ),
    );
    if (host.hidden || width < 100) return;
    const colours = readColours();
    const xs = Array.from({ length: width }, (_, x) => x / width);
    const curves = drawn.map(model => {
      if (!model) return xs.map(() => null);
      return Array.from(
        instants(model.totals, 0, model.steps, width).steps,
        step => model.totals[step],
      );
    });
    const { series } = areas([colours.groups[5], colours.ink]);
    const [time, bytes] = axes(colours, innerWidth < 640);
    series[2] = { ...series[2], fill: undefined, stroke: colours.ink, width: 1.5 };
    this.plot = new uPlot(
      {
        width,
        height: 170,
        padding: [8, 30, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: () => [0, 1] },
          y: { range: (_, low, high) => [Math.min(0, low), high * 1.08] },
        },
        axes: [
          {
            ...time,
            incrs: [0.1, 0.25, 0.5],
            values: (_, ticks) => ticks.map(tick => percent(tick, 1)),
          },
          bytes,
        ],
        series,
      },
      [xs, ...curves],
      host,
    );
  }
}
