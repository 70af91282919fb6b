// Tables of the page: columns that align, rows that can be chosen.

/** @import {Content} from "./dom.mjs" */
/**
 * @typedef {{title: string, kind?: "text" | "figure" | "picture" | "name" | "line", isWide?:
 *   boolean}}   Column  a figure aligns right; `isWide`: left out on a narrow page, where a tap
 *   on the row   tells it
 */
/**
 * @typedef {{cells: Content[], act?: () => void, isChosen?: boolean, isHit?: boolean, isSum?:
 *   boolean}} Row
 */

import { fill, make, nameOf } from "./dom.mjs";

/** @param {Column} column */
function classes({ kind, isWide }) {
  return [kind ?? "text", ...(isWide ? ["wide"] : [])].join(" ");
}

/** @param {HTMLTableRowElement} element @param {() => void} act */
function onChoice(element, act) {
  element.tabIndex = 0;
  element.addEventListener("click", act);
  element.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      act();
    }
  });
}

/** @param {Row} row @param {Column[]} columns */
function rowOf({ cells, act, isChosen, isHit, isSum }, columns) {
  const element = make("tr", { class: [isHit ? "hit" : "", isSum ? "sum" : ""].join(" ").trim() });
  cells.forEach((cell, i) =>
    element.append(
      make(
        i ? "td" : "th",
        { class: classes(columns[i]), ...(i ? {} : { scope: "row" }) },
        typeof cell === "string" ? nameOf(cell) : cell,
      ),
    ),
  );
  if (isChosen) element.setAttribute("aria-selected", "true");
  if (act) onChoice(element, act);
  return element;
}

/**
 * Fills a table.
 * @param {HTMLTableElement} table @param {Column[]} columns @param {Row[]} rows
 * @param {{sorted?: number, isRising?: boolean, sort?: (column: number) => void}} [order]
 */
export function fillTable(table, columns, rows, { sorted, isRising, sort } = {}) {
  const heads = columns.map((column, i) => {
    const head = make("th", { class: classes(column), scope: "col" });
    if (sort && column.title) {
      const act = make("button", { type: "button", class: "sort" }, column.title);
      act.addEventListener("click", () => sort(i));
      head.append(act);
      if (sorted === i) head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
    } else fill(head, column.title);
    return head;
  });
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...rows.map(row => rowOf(row, columns))),
  );
}
