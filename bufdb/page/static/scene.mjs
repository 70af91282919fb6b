// What the pictures show now: one module, a window, an instant, a colouring, a search, a choice.

/** @import {Colours} from "./colours.mjs" */
/** @import {Hits} from "./find.mjs" */
/** @import {Groups} from "./groups.mjs" */
/** @import {Colouring, Model} from "./model.mjs" */
/** @import {View} from "./view.mjs" */
import { bytesOver, fold, rank } from "./groups.mjs";

/**
 * @typedef {object} Scene
 * @property {Model} model
 * @property {View} view
 * @property {number} step the chosen instant
 * @property {Colouring} by
 * @property {Groups} groups of the temp blocks
 * @property {Float64Array[]} stack bytes up to and with each group at every step, from the fixed
 *   ones on
 * @property {Colours} colours
 * @property {string} find what is searched for, as it was typed
 * @property {Hits | null} hits
 * @property {number} chosen first value of the chosen bytes, −1 for none
 * @property {number} hover the block under the pointer, −1 for none
 */

/** What the temp blocks are coloured by; the same text for blocks of one colour.
 *  @param {Model} model @param {Colouring} by @returns {string[]} */
export function blockKeys(model, by) {
  const column = model.column("value_" + by);
  const known = new Map();
  const keys = new Array(model.temps);
  for (let block = 0; block < keys.length; block++) {
    const value = model.blocks.value[block];
    let key = known.get(column[value]);
    if (key === undefined) {
      key = model.key(value, by);
      known.set(column[value], (key = by === "op" ? fold(key) : key));
    }
    keys[block] = key;
  }
  return keys;
}

/**
 * The peak in parts: what is held for the whole run, then the groups. What a line, an op or a dtype
 * holds for the whole run is in its group, so that the group holds what `peak-by` says.
 * @param {Pick<Scene, "model" | "by" | "groups" | "stack">} scene
 * @returns {[name: string, bytes: number, group: number][]} group −1: in the colour of fixed bytes
 */
export function peakParts({ model, by, groups, stack }) {
  const step = model.peakStep;
  const held = groups.names.map(
    (_, group) => stack[group][step] - (group ? stack[group - 1][step] : model.fixed[step]),
  );
  /** @type {Map<string, number>} */
  const fixed = new Map();
  for (const [name, key, bytes] of model.fixedParts(by)) {
    const group = groups.names.indexOf(by === "op" ? fold(key) : key);
    if (group >= 0) held[group] += bytes;
    else fixed.set(name, (fixed.get(name) ?? 0) + bytes);
  }
  return [
    .../** @type {[string, number, number][]} */ (
      [...fixed].map(([name, size]) => [name, size, -1])
    ),
    .../** @type {[string, number, number][]} */ (
      groups.names.map((name, group) => [model.short(name), held[group], group])
    ),
  ].filter(([, bytes]) => bytes > 0);
}

/** The groups of a colouring, and their bytes as a stack upon the fixed ones.
 *  @param {Model} model @param {Colouring} by @returns {Pick<Scene, "by" | "groups" | "stack">} */
export function grouped(model, by) {
  const blocks = model.rectangles;
  const groups = rank(blockKeys(model, by), blocks.size, block =>
    model.lives(block, model.peakStep),
  );
  /** @type {Float64Array} */
  let below = model.fixed;
  const stack = bytesOver(groups, blocks, model.steps).map(bytes => {
    for (let step = 0; step < bytes.length; step++) bytes[step] += below[step];
    return (below = bytes);
  });
  return { by, groups, stack };
}
