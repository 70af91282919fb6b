// The table of what lives at the chosen step, the twin of the map.

/** @import {Scene} from "./scene.mjs" */
import { copyButtons } from "./copy.mjs";
import { button, byId, fill, make, nameOf, swatch } from "./dom.mjs";
import { savingNodes } from "./summary.mjs";
import { toCsv } from "./csv.mjs";
import { fillTable } from "./table.mjs";
import { counted, humanBytes } from "./text.mjs";

const FIRST_VALUES = 25;
const MOST_VALUES = 1000;
/** @type {import("./table.mjs").Column[]} */
const VALUE_COLUMNS = [
  { title: "", kind: "name" },
  { title: "value" },
  { title: "shape", isWide: true },
  { title: "size", kind: "figure" },
  { title: "padding", kind: "figure", isWide: true },
  { title: "steps", kind: "figure", isWide: true },
  { title: "line", kind: "line" },
  { title: "if it were gone", isWide: true },
];

/** @type {[string, string][]} */
const INSTANT_COLUMNS = [
  ["value", "VARCHAR"],
  ["shape", "VARCHAR"],
  ["dtype", "VARCHAR"],
  ["held_bytes", "BIGINT"],
  ["size_bytes", "BIGINT"],
  ["start_time", "BIGINT"],
  ["end_time", "BIGINT"],
  ["source", "VARCHAR"],
  ["op_path", "VARCHAR"],
];
/** @type {[string, string][]} */
const CURVE_COLUMNS = [
  ["step", "BIGINT"],
  ["occupied_bytes", "BIGINT"],
  ["instruction", "VARCHAR"],
];

export class Instant {
  /**
   * @param {{choose: (step: number) => void, pick: (buffer: number, block: number) => void}} acts
   */
  constructor(acts) {
    this.acts = acts;
    this.isAll = false;
  }

  /** @param {Scene} scene */
  show(scene) {
    const { model, step, hits } = scene;
    const live = model.buffersAt(step);
    const { value } = model.blocks;
    const shown = live.slice(0, this.isAll ? MOST_VALUES : FIRST_VALUES);
    fill(
      byId("instant-title"),
      `Largest of ${counted(live.length, "value")} at step ${step}` +
        `${step === model.peakStep ? " (the peak)" : ""}, ${humanBytes(model.totals[step])}`,
    );
    fillTable(
      /** @type {HTMLTableElement} */ (byId("instant")),
      VALUE_COLUMNS,
      shown.map(({ buffer, block, bytes }) => {
        const row = value[block];
        const padding = model.column("value_padding")[row] - 1;
        const [start, end] = model.bufferLife(buffer);
        return {
          cells: [
            swatch(block < model.temps ? scene.groups.of[block] : -1),
            model.name(row),
            model.textOf("value_shape", row),
            humanBytes(bytes),
            padding < 0 ? "" : humanBytes(padding),
            `${start}–${end}`,
            model.line(row),
            savingNodes(model.valueSavings.get(buffer), model, this.acts.choose),
          ],
          act: () => this.acts.pick(buffer, block),
          isChosen: buffer === scene.chosen,
          isHit: hits !== null && hits.values[row] === 1,
        };
      }),
    );
    const rest = live.length - shown.length;
    fill(
      byId("instant-more"),
      rest > 0 && !this.isAll
        ? button(`show ${Math.min(rest, MOST_VALUES - FIRST_VALUES)} more`, () => {
            this.isAll = true;
            this.show(scene);
          })
        : null,
      rest > 0 && this.isAll ? nameOf(`${rest} smaller ones are in the CSV`) : null,
    );
    const command = model.queryCommand("peak", step);
    fill(
      byId("instant-copy"),
      copyButtons(() => this.#csv(scene), command),
    );
  }

  /** All of them, in bytes. @param {Scene} scene */
  #csv({ model, step }) {
    return toCsv(
      INSTANT_COLUMNS,
      model.buffersAt(step).map(({ block, bytes }) => {
        const row = model.blocks.value[block];
        return [
          model.name(row),
          model.textOf("value_shape", row),
          model.textOf("value_dtype", row),
          bytes,
          model.column("value_size")[row],
          ...model.live(row),
          model.textOf("value_line", row),
          model.opPath(model.column("value_scope")[row]),
        ];
      }),
    );
  }
}

/** The peaks as a list, the twin of the curve's marks. @param {Scene} scene
 *  @param {(step: number) => void} choose */
export function listPeaks({ model }, choose) {
  fillTable(
    /** @type {HTMLTableElement} */ (byId("peaks")),
    [
      { title: "step", kind: "figure" },
      { title: "bytes", kind: "figure" },
      { title: "valley before a higher one", kind: "figure" },
      { title: "instruction", isWide: true },
    ],
    model.peaks.map(({ step, bytes, valley }) => ({
      cells: [
        make("span", {}, String(step)),
        humanBytes(bytes),
        valley === null ? "" : humanBytes(valley),
        model.instruction(step),
      ],
      act: () => choose(step),
    })),
  );
  fill(
    byId("peaks-copy"),
    copyButtons(
      () =>
        toCsv(
          CURVE_COLUMNS,
          Array.from(model.totals, (bytes, step) => [step, bytes, model.instruction(step)]),
        ),
      null,
    ),
  );
}
