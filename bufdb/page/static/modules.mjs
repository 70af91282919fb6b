// Runs and modules: one row each per memory space, to sort, to filter, to open. A training step is
// marked where another program of its run is higher.

/** @import {ModuleRow} from "./model.mjs" */
import { bar, button, byId, fill, make, nameOf } from "./dom.mjs";
import { partsOf } from "./model.mjs";
import { fillTable } from "./table.mjs";
import { counted, humanBytes } from "./text.mjs";
import { needOf, needWords, peakWords } from "./words.mjs";

/** @type {{title: string, of: (row: ModuleRow) => string | number | null,
 *   kind?: "figure" | "picture", isWide?: boolean}[]} */
const MODULE_COLUMNS = [
  { title: "run", of: row => row.run },
  { title: "function", of: row => row.function },
  { title: "platform", of: row => row.platform, isWide: true },
  { title: "space", of: row => row.space, isWide: true },
  { title: "needs", of: needOf, kind: "figure" },
  { title: "at the peak", of: row => row.peak_bytes, kind: "figure", isWide: true },
  {
    title: "arguments, outputs, constants, temps",
    of: row => row.total_bytes,
    kind: "picture",
    isWide: true,
  },
  { title: "temps", of: row => row.temp_bytes, kind: "figure", isWide: true },
];
const FIRST_ROWS = 8;
const NEED = 4;

/**
 * Rows in an order, what is unknown last either way.
 * @param {ModuleRow[]} rows
 * @param {number} column
 * @param {boolean} isRising
 */
export function sorted(rows, column, isRising) {
  const { of } = MODULE_COLUMNS[column];
  const sign = isRising ? 1 : -1;
  return [...rows].sort((a, b) => {
    const one = of(a);
    const two = of(b);
    if (one === null || two === null) return Number(one === null) - Number(two === null);
    return sign * (one < two ? -1 : one > two ? 1 : 0);
  });
}

/** The first rows, and training steps after them. @param {ModuleRow[]} rows */
export function firstRows(rows) {
  return rows.filter((row, i) => i < FIRST_ROWS || row.step);
}

/** Rows that a text is in. @param {ModuleRow[]} rows @param {string} text */
export function filtered(rows, text) {
  const wanted = text.trim().toLowerCase();
  return rows.filter(row =>
    [row.run, row.function, row.module_key, row.platform ?? "", row.space].some(name =>
      name.toLowerCase().includes(wanted),
    ),
  );
}

export class Modules {
  /** @param {ModuleRow[]} rows @param {(row: ModuleRow) => void} open */
  constructor(rows, open) {
    this.rows = rows;
    this.open = open;
    this.column = NEED;
    this.isRising = false;
    this.isAll = false;
    /** @type {ModuleRow | null} */
    this.chosen = null;
    this.largest = Math.max(1, ...rows.map(row => Math.max(row.total_bytes, needOf(row) ?? 0)));
    this.filter = /** @type {HTMLInputElement} */ (byId("filter"));
    this.filter.addEventListener("input", () => this.show());
    byId("modules-section").hidden = rows.length < 2;
  }

  /** @param {number} column */
  sort(column) {
    this.isRising = this.column === column && !this.isRising;
    this.column = column;
    this.show();
  }

  /** The row of the module that is open. @param {ModuleRow} row */
  choose(row) {
    this.chosen = row;
    this.show();
  }

  show() {
    const found = sorted(filtered(this.rows, this.filter.value), this.column, this.isRising);
    const shown = this.isAll ? found : firstRows(found);
    fillTable(
      /** @type {HTMLTableElement} */ (byId("modules")),
      MODULE_COLUMNS,
      shown.map(row => ({
        cells: [
          row.run,
          make(
            "span",
            { title: row.module_key },
            nameOf(row.function),
            row.step ? make("div", { class: "note" }, row.step) : null,
          ),
          row.platform ?? "unknown",
          row.space,
          this.#need(row),
          peakWords(row),
          this.#bar(row),
          humanBytes(row.temp_bytes),
        ],
        act: () => this.open(row),
        isChosen: row === this.chosen,
      })),
      { sorted: this.column, isRising: this.isRising, sort: column => this.sort(column) },
    );
    const rest = found.length - shown.length;
    fill(
      byId("modules-more"),
      `${shown.length} of ${counted(found.length, "row")}. `,
      rest > 0
        ? button(`show ${rest} more`, () => {
            this.isAll = true;
            this.show();
          })
        : null,
    );
  }

  /** @param {ModuleRow} row */
  #need(row) {
    return needWords(row) + (row.slot === null ? " (left out)" : "");
  }

  /** @param {ModuleRow} row */
  #bar(row) {
    const parts = partsOf(row);
    return bar(
      parts.map(([name, bytes]) => ["part " + name, bytes / this.largest]),
      parts.map(([name, bytes]) => `${name} ${humanBytes(bytes)}`).join(", "),
    );
  }
}
