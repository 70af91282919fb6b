// Figures and names as text. Names come from dumps, so from anybody: `visible` makes any fit to be
// shown.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
// The characters that bufdb.errors escapes: controls, line separators and what reorders text.
const OBEYED = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Text whose control and bidirectional characters are shown as \u202e. @param {string} text */
export function visible(text) {
  return text.replace(OBEYED, found => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A number with one decimal, halves to the even one, as Python rounds. @param {number} number */
function oneDecimal(number) {
  const tenths = number * 10;
  const below = Math.floor(tenths);
  const isHalf = tenths - below === 0.5;
  return ((isHalf ? below + (below % 2) : Math.round(tenths)) / 10).toFixed(1);
}

/**
 * Bytes with an IEC unit and one decimal, to the letter as bufdb's answers have them: "16.0 MiB".
 * @param {number} count
 */
export function humanBytes(count) {
  let size = Math.abs(count);
  let unit = 0;
  // Compared as rounded, or 1048575 would read 1024.0 KiB.
  while ((unit ? Number(oneDecimal(size)) : size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  return (count < 0 ? "−" : "") + (unit ? oneDecimal(size) : size) + " " + UNITS[unit];
}

/** Bytes more or less, always with a sign: "+1.5 MiB", "±0 B". @param {number} count */
export function signedBytes(count) {
  return (count > 0 ? "+" : count < 0 ? "" : "±") + humanBytes(count);
}

/**
 * A part of a whole: "52.0 %"; empty where there is no whole.
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  return whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "";
}

/** The last part of a path. @param {string} path */
export function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Text of at most `room` characters, cut at its end. @param {string} text @param {number} room */
export function cut(text, room) {
  return text.length <= room ? text : room < 2 ? "" : text.slice(0, room - 1) + "…";
}

/** A word with its number: "1 value", "2 values". @param {number} number @param {string} word */
export function counted(number, word) {
  return `${number.toLocaleString("en-US")} ${word}${number === 1 ? "" : "s"}`;
}
