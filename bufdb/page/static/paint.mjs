// Blocks painted into an array of pixels, and their numbers into a second one: exact at every zoom,
// and what lies under the pointer is one look-up. Blocks do not overlap, so the cost is their
// number and the pixels, whatever the zoom.

/** @import {View} from "./view.mjs" */
/**
 * @typedef {{start: Float64Array, end: Float64Array, offset: Float64Array, size: Float64Array}}
 *   Rectangles  steps `start` to `end`, both included; bytes from `offset` on
 */
/** @typedef {{width: number, height: number, pixels: Uint32Array, blocks: Int32Array}} Raster
 *  `blocks`: which block a pixel shows, −1 for none */
/**
 * @typedef {[block: number, left: number, top: number, right: number, bottom: number]} Place in
 *   pixels, ends excluded
 */

/**
 * The order of painting: small ones first, so that dust never hides a large block.
 * @param {Rectangles} of
 */
export function bySize({ start, end, size }) {
  const area = start.map((first, i) => size[i] * (end[i] - first + 1));
  return Uint32Array.from(area.keys()).sort((a, b) => area[a] - area[b]);
}

/**
 * Where a block lies, at least one pixel each way; null where it is not seen.
 * @returns {Place | null}
 * @param {Rectangles} of
 * @param {number} i
 * @param {View} view
 * @param {number} width
 * @param {number} height
 */
export function placeOf({ start, end, offset, size }, i, view, width, height) {
  const { t0, t1, y0, y1 } = view;
  if (start[i] >= t1 || end[i] + 1 <= t0 || offset[i] >= y1 || offset[i] + size[i] <= y0) {
    return null;
  }
  const across = width / (t1 - t0);
  const up = height / (y1 - y0);
  const left = Math.min(width - 1, Math.max(0, Math.round((start[i] - t0) * across)));
  const right = Math.min(width, Math.max(left + 1, Math.round((end[i] + 1 - t0) * across)));
  const top = Math.min(
    height - 1,
    Math.max(0, Math.round(height - (offset[i] + size[i] - y0) * up)),
  );
  const bottom = Math.min(height, Math.max(top + 1, Math.round(height - (offset[i] - y0) * up)));
  return [i, left, top, right, bottom];
}

/**
 * Paints all blocks that are seen.
 * @param {Raster} raster
 * @param {Rectangles} rectangles
 * @param {Uint32Array} order
 * @param {View} view
 * @param {(block: number) => number[]} colours as pixels: inside, edge above, edge on the left
 * @param {number} ground the colour where nothing lies
 * @returns {Place[]} what is large enough for a label
 */
export function paint(raster, rectangles, order, view, colours, ground) {
  const { width, height, pixels, blocks } = raster;
  const labels = [];
  pixels.fill(ground);
  blocks.fill(-1);
  for (const i of order) {
    const place = placeOf(rectangles, i, view, width, height);
    if (!place) continue;
    const [, left, top, right, bottom] = place;
    const [fill, edge, side] = colours(i);
    const hasEdge = right - left > 3 && bottom - top > 3;
    for (let y = top; y < bottom; y++) {
      const row = y * width;
      pixels.fill(hasEdge && y === top ? edge : fill, row + left, row + right);
      blocks.fill(i, row + left, row + right);
      if (hasEdge) pixels[row + left] = side;
    }
    if (right - left > 60 && bottom - top > 14) labels.push(place);
  }
  return labels;
}
