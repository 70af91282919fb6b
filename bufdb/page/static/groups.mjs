// Which blocks share a colour: the seven keys with most bytes at the peak, and all others. Chosen
// at the peak and kept at every step, so that a colour means one thing while somebody steps.

/**
 * @typedef {{names: string[], of: Uint8Array, folded: number}} Groups  names in order, "other"
 *   last if there is one; the group of each block; how many keys "other" holds
 */

export const COLOURS = 7;

/** A key whose numbers do not matter: unrolled layers would all be "other". @param {string} key */
export function fold(key) {
  return key.replace(/\d+/g, "*");
}

/**
 * @param {string[]} keys of the blocks @param {ArrayLike<number>} size bytes of the blocks
 * @param {(block: number) => boolean} atPeak whether a block lives at the peak
 * @returns {Groups}
 */
export function rank(keys, size, atPeak) {
  /** @type {Map<string, [peak: number, all: number]>} */
  const held = new Map();
  for (let i = 0; i < keys.length; i++) {
    const sums = held.get(keys[i]) ?? [0, 0];
    if (atPeak(i)) sums[0] += size[i];
    sums[1] += size[i];
    held.set(keys[i], sums);
  }
  const ranked = [...held]
    .sort(([a, [p, s]], [b, [q, t]]) => q - p || t - s || (a < b ? -1 : 1))
    .map(([key]) => key);
  // One key alone beyond the seven keeps its name: "other" of one would hide it.
  const top = ranked.slice(0, COLOURS);
  const rest = ranked.length - top.length;
  const index = new Map(top.map((key, group) => [key, group]));
  return {
    names: rest ? [...top, rest === 1 ? ranked[COLOURS] : `other (${rest})`] : top,
    of: Uint8Array.from(keys, key => index.get(key) ?? COLOURS),
    folded: rest,
  };
}

/**
 * Bytes of each group at every step.
 * @param {Groups} groups
 * @param {{start: Float64Array, end: Float64Array, size: Float64Array}} blocks
 * @param {number} steps
 * @returns {Float64Array[]} in the order of the names
 */
export function bytesOver(groups, { start, end, size }, steps) {
  const sums = groups.names.map(() => new Float64Array(steps + 1));
  for (let i = 0; i < start.length; i++) {
    const sum = sums[groups.of[i]];
    sum[start[i]] += size[i];
    sum[end[i] + 1] -= size[i];
  }
  for (const sum of sums) for (let step = 1; step <= steps; step++) sum[step] += sum[step - 1];
  return sums.map(sum => sum.subarray(0, steps));
}
