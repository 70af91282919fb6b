// The trees of the icicle: who holds the bytes of a step, by call stack or by op scope. Every byte
// of the step is in it once: what has no stack or scope, and what is fixed, are roots of their own.

/** @import {Model} from "./model.mjs" */
/** @import {Hits} from "./find.mjs" */
import { repeated } from "./rounds.mjs";
/** @typedef {"stack" | "library" | "op"} TreeKind the user's own frames; all frames; op scopes */

export class TreeShape {
  /** The nodes of a module's tree, whatever lives. @param {Model} model @param {TreeKind} kind */
  constructor(model, kind) {
    /** @type {number[]} */
    this.parent = [];
    /** @type {string[]} */
    this.label = [];
    /** @type {number[][]} the rows that a node stands for: frames, or ops */
    this.rows = [];
    this.model = model;
    this.isOp = kind === "op";
    this.nodeOf = this.isOp ? this.#ops() : this.#frames(kind === "library");
    this.column = model.column(this.isOp ? "value_scope" : "value_frame");
    this.kinds = new Map();
    for (const kindName of new Set(model.fixedParts("category").map(([each]) => each))) {
      this.kinds.set(kindName, this.#add(-1, kindName, -1));
    }
    this.nowhere = this.#add(-1, this.isOp ? "(no op)" : "(no line)", -1);
  }

  /** @param {number} parent @param {string} label @param {number} row */
  #add(parent, label, row) {
    this.rows.push(row < 0 ? [] : [row]);
    this.parent.push(parent);
    return this.label.push(label) - 1;
  }

  #ops() {
    const parent = this.model.column("op_parent");
    return Array.from(parent, (above, node) =>
      this.#add(above, this.model.textOf("op_text", node), node),
    );
  }

  /** Frames of the same place under the same node are one, and so are rounds of the same frames;
   *  those left out are their callers'.
   *  @param {boolean} hasLibrary */
  #frames(hasLibrary) {
    /** @type {number[]} */
    const nodes = [];
    /** @type {Map<string, number>} */
    const known = new Map();
    /** @type {string[]} */
    const frames = [];
    this.model.column("frame_parent").forEach((above, row) => {
      const { text, place, path, isOwn } = this.model.frame(row);
      const node = above < 0 ? -1 : nodes[above];
      if (!hasLibrary && !isOwn) {
        nodes.push(node);
        return;
      }
      const frame = `${text} ${path}`;
      const key = `${node} ${frame}`;
      const before = repeated(frames, this.parent, node, frame);
      const there = before < 0 ? known.get(key) : before;
      if (there === undefined) {
        const made = this.#add(node, `${text}  ${place}`, row);
        frames[made] = frame;
        known.set(key, made);
        nodes.push(made);
      } else {
        this.rows[there].push(row);
        nodes.push(there);
      }
    });
    return nodes;
  }

  /** The bytes of each node itself at a step. @param {number} step */
  bytesAt(step) {
    const { model } = this;
    const own = new Float64Array(this.parent.length);
    for (const block of model.blocksAt(step)) {
      const value = model.blocks.value[block];
      const size = model.blocks.size[block];
      if (block >= model.temps) {
        own[this.kinds.get(model.textOf("value_kind", value).replaceAll("_", " "))] += size;
      } else {
        const node = this.nodeOf[this.column[value]] ?? -1;
        own[node < 0 ? this.nowhere : node] += size;
      }
    }
    return own;
  }

  /** Whether a search finds a node. @param {number} node @param {Hits | null} hits */
  isHit(node, hits) {
    return hits !== null && this.rows[node].some(row => (this.isOp ? hits.ops : hits.frames)[row]);
  }
}
