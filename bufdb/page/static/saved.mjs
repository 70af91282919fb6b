// The tables of saved queries: their rows as the query gave them, its command, and CSV.

/** @import {Model, Table} from "./model.mjs" */
/** @import {Column} from "./table.mjs" */
import { copyButtons } from "./copy.mjs";
import { fill, make, nameOf } from "./dom.mjs";
import { toCsv } from "./csv.mjs";
import { fillTable } from "./table.mjs";
import { counted, humanBytes, humanTime, percent } from "./text.mjs";

/** Columns that are the same in all rows of a module: on the page they are its title. */
const SAME = new Set(["run_name", "function_name", "platform", "color"]);
const LONG = 40;
const NUMBERS = /^(U?(TINY|SMALL|HUGE|BIG)?INT|INTEGER|DOUBLE|FLOAT|DECIMAL.*)$/;

/** A cell in words: bytes with a unit, shares in percent, NULL as nothing. @param {string} name
 *  @param {string | number | boolean | null | undefined} cell */
export function cellText(name, cell) {
  if (cell === null || cell === undefined) return "";
  if (name.endsWith("_bytes")) return humanBytes(Number(cell));
  if (name.endsWith("_bytes_per_ms")) return humanBytes(Math.round(Number(cell)));
  if (name.endsWith("_ns")) return humanTime(Number(cell));
  if (name.endsWith("_ratio")) return percent(Number(cell), 1);
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  return String(cell);
}

/** Long text in lines, short text in one. @param {string} text */
function cellOf(text) {
  return text.length > LONG ? make("span", { class: "long" }, nameOf(text)) : text;
}

/** Fills an element with a query's answer. @param {Table} table @param {HTMLTableElement} element
 *  @param {(column: string) => boolean} isShown */
export function fillAnswer(table, element, isShown) {
  const indices = [...table.columns.keys()].filter(
    i => isShown(table.columns[i][0]) && table.rows.some(row => row[i] !== null),
  );
  /** @type {Column[]} */
  const columns = indices.map(i => ({
    title: table.columns[i][0].replace(/_bytes$/, "").replaceAll("_", " "),
    kind: NUMBERS.test(table.columns[i][1]) ? "figure" : "text",
  }));
  const rows = table.rows.map(row => ({
    cells: indices.map(i => cellOf(cellText(table.columns[i][0], row[i]))),
  }));
  fillTable(element, columns, rows);
}

/** One closed table. @param {Table} table */
function closed(table) {
  const element = make("table", {});
  const box = make(
    "details",
    { class: "saved", id: "table-" + table.name },
    make(
      "summary",
      {},
      nameOf(table.title),
      make("span", { class: "dim" }, ` ${table.rows.length}${table.is_cut ? " largest" : ""}`),
    ),
  );
  // Filled when it is opened: most never are.
  box.addEventListener("toggle", () => {
    if (!box.open || element.tHead) return;
    fillAnswer(table, element, name => !SAME.has(name) && name !== "unknown_reason");
    box.append(
      copyButtons(() => toCsv(table.columns, table.rows), table.command),
      ...(table.note === null ? [] : [make("p", {}, nameOf(table.note))]),
      ...(table.is_cut
        ? [make("p", {}, `The first ${counted(table.rows.length, "row")}; the command gives all.`)]
        : []),
      make(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
        element,
      ),
    );
  });
  return box;
}

/**
 * All tables of a module.
 *
 * @param {HTMLElement} box
 * @param {Model} model
 */
export function showTables(box, model) {
  const said =
    "The page has tables for the largest compilation of each function. For this one, use: ";
  fill(
    box,
    ...(model.tables.length
      ? model.tables.map(closed)
      : [make("p", {}, said, make("code", {}, model.queryCommand("advice")))]),
  );
}
