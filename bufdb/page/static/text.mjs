// Figures and names as text. Names come from dumps, so from anybody: `visible` makes any fit to be
// shown.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
// The characters that bufdb.errors escapes: controls, line separators and what reorders text.
const OBEYED = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** Text whose control and bidirectional characters are shown as \u202e. @param {string} text */
export function visible(text) {
  return text.replace(OBEYED, found => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A number with so many decimals, halves to the even one, as Python rounds.
 *  @param {number} number @param {number} decimals */
function fixed(number, decimals) {
  const scaled = number * 10 ** decimals;
  const below = Math.floor(scaled);
  const isHalf = scaled - below === 0.5;
  return ((isHalf ? below + (below % 2) : Math.round(scaled)) / 10 ** decimals).toFixed(decimals);
}

/** So many significant digits, but all before the point. @param {number} size
 *  @param {number} digits */
function rounded(size, digits) {
  const whole = (/** @type {number} */ number) => String(Math.trunc(number)).length;
  const text = fixed(size, Math.max(0, digits - whole(size)));
  // 9.999 has gained a digit as 10.00.
  return fixed(size, Math.max(0, digits - whole(Number(text))));
}

/**
 * Bytes with an IEC unit and three significant digits, to the letter as bufdb's answers have them:
 * "16.0 MiB".
 * @param {number} count
 * @param {number} digits
 */
export function humanBytes(count, digits = 3) {
  let size = Math.abs(count);
  let text = String(size);
  let unit = 0;
  // Compared as rounded, or 1048575 would read 1024 KiB.
  while (Number(text) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit++;
    text = rounded(size, digits);
  }
  return (count < 0 ? "−" : "") + text + " " + UNITS[unit];
}

/** Nanoseconds in words: "12.3 ms", "512 ns". @param {number} ns */
export function humanTime(ns) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([
    ["s", 1e9],
    ["ms", 1e6],
    ["µs", 1e3],
  ])) {
    // Compared as rounded, or 999999 would read 1000 µs.
    const text = rounded(Math.abs(ns) / size, 3);
    if (Number(text) >= 1) return (ns < 0 ? "−" : "") + text + " " + unit;
  }
  return Math.round(ns) + " ns";
}

/** Bytes to be compared, with as many digits as show where they differ. @param {number[]} counts */
export function apart(counts) {
  for (let digits = 3; digits <= 6; digits++) {
    const texts = counts.map(count => humanBytes(count, digits));
    if (new Set(texts).size === new Set(counts).size) return texts;
  }
  return counts.map(count => count + " B");
}

/** Bytes more or less, always with a sign: "+1.5 MiB", "±0 B". @param {number} count */
export function signedBytes(count) {
  return (count > 0 ? "+" : count < 0 ? "" : "±") + humanBytes(count);
}

/**
 * A part of a whole: "52.0 %", of several times the whole "×85,600"; empty where there is no whole.
 * @param {number} part
 * @param {number} all
 */
export function percent(part, all) {
  if (!(all > 0)) return "";
  if (part < 10 * all) return ((100 * part) / all).toFixed(1) + " %";
  return "×" + (part / all).toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** The last part of a path. @param {string} path */
export function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** The file and line that a name ends with, "" for none and for a long one. @param {string} name */
export function lineAtEnd(name) {
  return /[^/\s]{1,40}:\d+$/.exec(name)?.[0] ?? "";
}

/** Text of at most `room` characters, cut at its end. @param {string} text @param {number} room */
export function cut(text, room) {
  return text.length <= room ? text : room < 2 ? "" : text.slice(0, room - 1) + "…";
}

/** A word with its number: "1 value", "2 values". @param {number} number @param {string} word */
export function counted(number, word) {
  return `${number.toLocaleString("en-US")} ${word}${number === 1 ? "" : "s"}`;
}
