// The colours of the style sheet, as the canvases need them. Six-digit hex in the style sheet is
// the contract.

import { COLOURS } from "./groups.mjs";

/**
 * @typedef {{ground: string, ink: string, dim: string, rule: string, mark: string, fixed: string,
 *   hole: string,   groups: string[]}} Colours
 */

/** @returns {Colours} of the theme that holds now */
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (/** @type {string} */ name) => style.getPropertyValue("--" + name).trim();
  return {
    ground: of("bg"),
    ink: of("fg"),
    dim: of("dim"),
    rule: of("rule"),
    mark: of("mark"),
    fixed: of("fixed"),
    hole: of("hole"),
    groups: Array.from({ length: COLOURS + 1 }, (_, group) => of("g" + group)),
  };
}

/** @param {string} hex of six digits @returns {number[]} red, green, blue */
function parts(hex) {
  return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
}

/** A colour as a pixel of an ImageData (little end first), with `share` of it over a ground.
 *  @param {string} hex @param {number} [share] @param {string} [ground] */
export function pixel(hex, share = 1, ground = "#000000") {
  const below = parts(ground);
  const [red, green, blue] = parts(hex).map((part, i) =>
    Math.round(part * share + below[i] * (1 - share)),
  );
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Black or white, whichever reads better on a colour (WCAG's contrast). @param {string} hex */
export function inkOn(hex) {
  const [red, green, blue] = parts(hex).map(part => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (light + 0.05) ** 2 > 1.05 * 0.05 ? "#111111" : "#ffffff";
}
