// Rows as CSV, to the letter as `bufdb query --format csv` writes them.

/** @typedef {string | number | boolean | null} Cell */

/** A number as DuckDB's and Python's text of a DOUBLE: 1.0, 1.25e-05. @param {number} number */
function doubleText(number) {
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e16)) {
    return number.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  }
  return Number.isInteger(number) ? number.toFixed(1) : String(number);
}

/**
 * One cell: nothing for NULL, in quotes where it must be.
 * @param {Cell} cell
 * @param {string} type DuckDB's
 */
export function csvCell(cell, type) {
  if (cell === null) return "";
  const text = type === "DOUBLE" && typeof cell === "number" ? doubleText(cell) : String(cell);
  const isQuoted = text === "" || text !== text.trim() || /[",\r\n]/.test(text);
  return isQuoted ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {[name: string, type: string][]} columns @param {Cell[][]} rows */
export function toCsv(columns, rows) {
  const lines = rows.map(row => row.map((cell, i) => csvCell(cell, columns[i][1])));
  const head = columns.map(([name]) => csvCell(name, "VARCHAR"));
  return [head, ...lines].map(cells => cells.join(",") + "\n").join("");
}
