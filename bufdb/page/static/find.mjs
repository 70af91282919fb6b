// One search for all pictures: a substring of a value's name, shape, op path, line, function or
// file:line.

/** @import {Model} from "./model.mjs" */
/**
 * @typedef {{values: Uint8Array, frames: Uint8Array, ops: Uint8Array}} Hits 1 where a row is
 *   found
 */

/** What is searched for: no matter of case, never a pattern. @param {string} asked */
export function needle(asked) {
  return asked.trim().toLowerCase();
}

/**
 * @param {Model} model @param {string} wanted of `needle`
 * @returns {Hits | null} null where nothing is searched for
 */
export function search(model, wanted) {
  if (!wanted) return null;
  const found = (/** @type {string} */ text) => text.toLowerCase().includes(wanted);
  const hasText = model.text.map(found);
  const column = model.column;
  const isText = (/** @type {string} */ name, /** @type {number} */ row) =>
    hasText[column(name)[row]] ?? false;
  // Of a path each node says its part; those below a hit are hits too. A slash is looked for in the
  // path.
  const hasSlash = wanted.includes("/");
  const parent = column("op_parent");
  const ops = new Uint8Array(parent.length);
  for (let node = 0; node < ops.length; node++) {
    if (parent[node] >= 0 && ops[parent[node]]) ops[node] = 1;
    else if (hasSlash ? found(model.opPath(node)) : isText("op_text", node)) ops[node] = 1;
  }
  const frames = Uint8Array.from(column("frame_parent"), (_, frame) =>
    isText("frame_function", frame) || found(model.frame(frame).path) ? 1 : 0,
  );
  const scope = column("value_scope");
  const frame = column("value_frame");
  const values = new Uint8Array(model.values);
  for (let value = 0; value < values.length; value++) {
    if (
      isText("value_shape", value) ||
      isText("value_line", value) ||
      found(model.line(value)) ||
      ops[scope[value]] ||
      frames[frame[value]] ||
      found(model.name(value))
    ) {
      values[value] = 1;
    }
  }
  return { values, frames, ops };
}

/** How many values are found, and their bytes at a step. @param {Model} model @param {Hits} hits
 *  @param {number} step @returns {{count: number, bytes: number}} */
export function tally(model, hits, step) {
  let count = 0;
  let bytes = 0;
  for (const hit of hits.values) count += hit;
  for (let block = 0; block < model.blocks.size.length; block++) {
    if (hits.values[model.blocks.value[block]] && model.lives(block, step)) {
      bytes += model.blocks.size[block];
    }
  }
  return { count, bytes };
}
