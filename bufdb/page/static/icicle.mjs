// Places of an icicle: a tree of bytes as rows of bars, each child under its parent. Loops, not
// recursion: stacks are deep. Two passes are enough, since parents come before their children.

/**
 * @typedef {{total: Float64Array, left: Float64Array, depth: Int32Array, nodes: number[], bytes:
 *   number, levels: number}} Icicle  bytes of each node and of what is below it; bytes left of
 *   it; row from 0; nodes with bytes, row by row; sum; rows
 */

/**
 * @param {ArrayLike<number>} parent of each node, −1 for a root; parents before children
 * @param {ArrayLike<number>} own bytes of each node without its children
 * @returns {Icicle}
 */
export function layOut(parent, own) {
  const count = parent.length;
  const total = Float64Array.from(own);
  const depth = new Int32Array(count);
  let bytes = 0;
  for (let node = count - 1; node >= 0; node--) {
    if (parent[node] >= 0) total[parent[node]] += total[node];
    else bytes += total[node];
  }
  const nodes = [];
  for (let node = 0; node < count; node++) {
    depth[node] = parent[node] < 0 ? 0 : depth[parent[node]] + 1;
    if (total[node] > 0) nodes.push(node);
  }
  nodes.sort((a, b) => depth[a] - depth[b] || total[b] - total[a] || a - b);
  const left = new Float64Array(count);
  const taken = new Float64Array(count);
  let roots = 0;
  for (const node of nodes) {
    if (parent[node] < 0) {
      left[node] = roots;
      roots += total[node];
    } else {
      left[node] = left[parent[node]] + taken[parent[node]];
      taken[parent[node]] += total[node];
    }
  }
  const last = nodes.at(-1);
  return { total, left, depth, nodes, bytes, levels: last === undefined ? 0 : depth[last] + 1 };
}
