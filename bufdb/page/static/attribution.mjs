// The parts of a change of a peak, which add up to it: two bars on one scale, and a table that ends
// in the sum.

import { fill, make, nameOf, swatch } from "./dom.mjs";
import { COLOURS } from "./groups.mjs";
import { fillTable } from "./table.mjs";
import { apart, counted, humanBytes, signedBytes } from "./text.mjs";

/** @typedef {{[column: string]: any}} Line a row of `bufdb diff` by column */

/** Base and new, whose texts differ if they do. @param {Line} row @returns {string[]} */
export function told({ base_bytes: base, new_bytes: now }) {
  const known = [base, now].filter(bytes => bytes !== null);
  const texts = apart(known);
  return [base, now].map(bytes => (bytes === null ? "unknown" : texts[known.indexOf(bytes)]));
}

/** @param {number | null} bytes */
export function toldChange(bytes) {
  return bytes === null ? "" : signedBytes(bytes);
}

/**
 * A change as a bar from the middle: less to the left, more to the right.
 * @param {number} change
 * @param {number} largest
 */
export function changeBar(change, largest) {
  const share = (50 * Math.abs(change)) / Math.max(1, largest);
  const piece = make("span", { class: change < 0 ? "less" : "more" });
  piece.style.width = share + "%";
  piece.style.left = (change < 0 ? 50 - share : 50) + "%";
  return make("div", { class: "change", role: "img", "aria-label": signedBytes(change) }, piece);
}

/** The sum of a column. @param {Line[]} parts @param {string} name */
function sumOf(parts, name) {
  return parts.reduce((all, each) => all + (each[name] ?? 0), 0);
}

/** The parts that have a color: those with most bytes on either side. @param {Line[]} parts */
export function colouredParts(parts) {
  const most = (/** @type {Line} */ { base_bytes: base, new_bytes: now }) =>
    Math.max(base ?? 0, now ?? 0);
  return [...parts].sort((a, b) => most(b) - most(a)).slice(0, COLOURS);
}

/**
 * One side as a bar of its parts.
 * @param {string} side
 * @param {Line[]} parts
 * @param {Line[]} coloured
 * @param {number} scale bytes of the whole width
 */
function sideBar(side, parts, coloured, scale) {
  const column = side + "_bytes";
  const rest = parts.filter(part => !coloured.includes(part));
  /** @type {(name: string, bytes: number, group: number) => HTMLElement} */
  const piece = (name, bytes, group) => {
    const span = make("span", { title: `${name} ${humanBytes(bytes)}` });
    span.style.width = (100 * bytes) / scale + "%";
    span.style.background = `var(--g${group})`;
    return span;
  };
  const named = coloured.map((part, group) => piece(String(part.part), part[column] ?? 0, group));
  return make(
    "div",
    { class: "side" },
    make("b", {}, side),
    make("div", { class: "pieces" }, ...named, piece("other", sumOf(rest, column), COLOURS)),
  );
}

/** @param {Line[]} parts @returns {string[]} */
function sums(parts) {
  const [base, now, change] = ["base_bytes", "new_bytes", "delta_bytes"].map(name =>
    sumOf(parts, name),
  );
  return [...apart([base, now]), signedBytes(change), ""];
}

/**
 * @param {HTMLTableElement} table
 * @param {HTMLElement} bars
 * @param {Line[]} parts of one change
 */
export function fillParts(table, bars, parts) {
  const coloured = colouredParts(parts);
  const changed = parts.filter(part => part.delta_bytes !== 0);
  const same = parts.filter(part => part.delta_bytes === 0);
  const largest = Math.max(...changed.map(({ delta_bytes: change }) => Math.abs(change ?? 0)));
  const rows = changed.map(part => {
    const group = coloured.includes(part) ? coloured.indexOf(part) : COLOURS;
    return {
      cells: [
        make("span", {}, swatch(group), nameOf(String(part.part))),
        ...told(part),
        toldChange(part.delta_bytes),
        part.delta_bytes === null ? "" : changeBar(part.delta_bytes, largest),
      ],
    };
  });
  fillTable(
    table,
    [
      { title: "part" },
      { title: "base", kind: "figure", isWide: true },
      { title: "new", kind: "figure", isWide: true },
      { title: "change", kind: "figure" },
      { title: "", kind: "picture" },
    ],
    [
      ...rows,
      ...(same.length
        ? [{ cells: [`${counted(same.length, "part")} unchanged`, ...sums(same)] }]
        : []),
      ...(parts.length ? [{ cells: ["sum", ...sums(parts)], isSum: true }] : []),
    ],
  );
  const scale = Math.max(1, sumOf(parts, "base_bytes"), sumOf(parts, "new_bytes"));
  const sides = parts.length ? ["base", "new"] : [];
  fill(bars, ...sides.map(side => sideBar(side, parts, coloured, scale)));
}
