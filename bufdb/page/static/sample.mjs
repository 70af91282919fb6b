// One instant for each pixel of the curve: that with the highest total, so that no peak is lost.
// All groups are taken at that instant: their maxima would add up to bytes that were never there
// together.

/**
 * The step with the highest total from `from` to `to`, both included.
 * @param {ArrayLike<number>} totals
 * @param {number} from
 * @param {number} to
 */
export function highest(totals, from, to) {
  let at = from;
  for (let step = from + 1; step <= to; step++) if (totals[step] > totals[at]) at = step;
  return at;
}

/**
 * For each of `width` pixels of the steps t0 to t1: where it begins, and the step that stands for
 * it.
 * @param {ArrayLike<number>} totals bytes of every step
 * @param {number} t0
 * @param {number} t1
 * @param {number} width
 * @returns {{edges: Float64Array, steps: Int32Array}}
 */
export function instants(totals, t0, t1, width) {
  const edges = new Float64Array(width);
  const steps = new Int32Array(width);
  const last = totals.length - 1;
  for (let pixel = 0; pixel < width; pixel++) {
    const from = t0 + ((t1 - t0) * pixel) / width;
    const to = t0 + ((t1 - t0) * (pixel + 1)) / width;
    const first = Math.min(last, Math.floor(from));
    edges[pixel] = from;
    steps[pixel] = highest(totals, first, Math.min(last, Math.max(first, Math.ceil(to) - 1)));
  }
  return { edges, steps };
}
