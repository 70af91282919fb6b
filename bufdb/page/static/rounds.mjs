// Frames that come in rounds: the scan of flax traces a layer several times, each time with the
// calls that lead to it.

/**
 * How many rounds each frame of a stack is there for: 0 for one that is told by the outermost of
 * its rounds.
 * @param {string[]} frames innermost first
 */
export function roundCounts(frames) {
  const counts = frames.map(() => 1);
  for (let period = 1; 2 * period <= frames.length; period++) {
    let series = 0;
    for (let place = 0; place + period <= frames.length; place++) {
      if (place + period < frames.length && frames[place] === frames[place + period]) {
        series++;
      } else {
        counts.fill(0, place - (series - (series % period)), place);
        series = 0;
      }
    }
  }
  /** @type {Map<string, number>} */
  const folded = new Map();
  return counts.map((count, place) => {
    const rounds = (folded.get(frames[place]) ?? 0) + 1;
    folded.set(frames[place], count ? 0 : rounds);
    return count && rounds;
  });
}

/**
 * The node that a frame under `node` repeats, with all nodes of a round before it; -1 for none.
 * @param {string[]} frames of the nodes
 * @param {number[]} parent of the nodes
 * @param {number} node
 * @param {string} frame
 */
export function repeated(frames, parent, node, frame) {
  for (let far = node, period = 1; far >= 0; far = parent[far], period++) {
    if (frames[far] !== frame) continue;
    let [left, near, above] = [period - 1, node, parent[far]];
    while (left > 0 && above >= 0 && frames[near] === frames[above]) {
      [left, near, above] = [left - 1, parent[near], parent[above]];
    }
    if (left === 0) return far;
  }
  return -1;
}
