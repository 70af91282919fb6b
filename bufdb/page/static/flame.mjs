// The icicle as a picture, with its twin, a list to read: who holds the bytes of the chosen step.

/** @import {Icicle} from "./icicle.mjs" */
/** @import {Scene} from "./scene.mjs" */
/** @import {TreeKind} from "./tree.mjs" */
import { fill, make } from "./dom.mjs";
import { layOut } from "./icicle.mjs";
import { cut, humanBytes, percent, visible } from "./text.mjs";
import { TreeShape } from "./tree.mjs";

/**
 * @typedef {{node: number, left: number, right: number, row: number}} Cell in CSS pixels; node
 *   −1: all of it
 */

const BAR_HEIGHT = 19;
const DEEPEST = 60;
const LISTED = 200;
// Light in both themes, with dark text: what a row means is its text, not its colour.
const TINTS = ["#f0c987", "#f4d8a5", "#e9bd78", "#f7e3c0"];
const ROOT = "#d9dde2";
const FOUND = "#8fb4ff";
const MISSED = "#efeae1";
const INK = "#1b1f24";

export class Flame {
  /** @param {HTMLElement} host @param {HTMLElement} reading tells the bar under the pointer
   *  @param {HTMLElement} list the twin */
  constructor(host, reading, list) {
    this.host = host;
    this.reading = reading;
    this.list = list;
    this.canvas = host.appendChild(make("canvas", { tabindex: "0", role: "img" }));
    /** @type {Cell[]} */
    this.cells = [];
    /** @type {TreeShape | null} */
    this.tree = null;
    /** @type {Icicle | null} */
    this.icicle = null;
    /** @type {Scene | null} */
    this.scene = null;
    this.root = -1;
    this.#listen();
  }

  /** Another module or another kind of tree. @param {Scene} scene @param {TreeKind} kind */
  open(scene, kind) {
    this.tree = new TreeShape(scene.model, kind);
    this.root = -1;
    this.show(scene);
  }

  /** The bytes of another step. @param {Scene} scene */
  show(scene) {
    if (!this.tree) return;
    this.scene = scene;
    this.icicle = layOut(this.tree.parent, this.tree.bytesAt(scene.step));
    if (this.root >= 0 && !this.icicle.total[this.root]) this.root = -1;
    this.draw(scene);
  }

  /** The same bytes: another width or search. @param {Scene} scene */
  draw(scene) {
    const { icicle, tree, canvas } = this;
    const context = canvas.getContext("2d");
    const width = this.host.clientWidth;
    if (!icicle || !tree || !context || !width) return;
    this.scene = scene;
    const ratio = Math.max(1, devicePixelRatio);
    const rows = Math.min(DEEPEST, icicle.levels + 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(rows * BAR_HEIGHT * ratio);
    canvas.style.height = rows * BAR_HEIGHT + "px";
    canvas.setAttribute(
      "aria-label",
      `${humanBytes(icicle.bytes)} at step ${scene.step}; the list below says the same`,
    );
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.cells = this.#cells(width);
    const letter = context.measureText("n").width;
    for (const cell of this.cells) this.#cell(context, cell, letter);
    this.#listed();
    this.read(null);
  }

  /** What is wide enough to be seen. @param {number} width @returns {Cell[]} */
  #cells(width) {
    const { icicle, root } = this;
    if (!icicle) return [];
    const from = root < 0 ? 0 : icicle.left[root];
    const bytes = root < 0 ? icicle.bytes : icicle.total[root];
    const scale = width / Math.max(1, bytes);
    const cells = [{ node: -1, left: 0, right: width, row: 0 }];
    for (const node of icicle.nodes) {
      const left = Math.max(0, (icicle.left[node] - from) * scale);
      const right = Math.min(width, (icicle.left[node] + icicle.total[node] - from) * scale);
      if (right - left >= 0.7 && icicle.depth[node] + 1 < DEEPEST) {
        cells.push({ node, left, right, row: icicle.depth[node] + 1 });
      }
    }
    return cells;
  }

  /** Text and bytes of a node. @param {number} node @returns {[string, number]} */
  #told(node) {
    if (!this.icicle || !this.tree) return ["", 0];
    return node < 0
      ? [`all at step ${this.scene?.step}`, this.icicle.bytes]
      : [this.tree.label[node], this.icicle.total[node]];
  }

  /** @param {CanvasRenderingContext2D} context @param {Cell} cell @param {number} letter */
  #cell(context, { node, left, right, row }, letter) {
    const hits = this.scene?.hits ?? null;
    const bytes = this.icicle?.bytes ?? 0;
    const [label, held] = this.#told(node);
    const isHit = node >= 0 && (this.tree?.isHit(node, hits) ?? false);
    const isRoot = node < 0 || !this.tree?.rows[node].length;
    context.fillStyle = isHit ? FOUND : isRoot ? ROOT : hits ? MISSED : TINTS[row % TINTS.length];
    context.fillRect(left, row * BAR_HEIGHT, Math.max(0.7, right - left - 1), BAR_HEIGHT - 1);
    if (right - left < 36) return;
    const text = visible(`${label}  ${humanBytes(held)}  ${percent(held, bytes)}`);
    const room = right - left - 8;
    const fits =
      context.measureText(text).width <= room
        ? text
        : cut(text, Math.floor((room / letter) * 0.95));
    context.fillStyle = INK;
    context.fillText(fits, left + 4, row * BAR_HEIGHT + BAR_HEIGHT / 2, room);
  }

  /** The largest nodes as a list, each under its parent. */
  #listed() {
    const { icicle, tree } = this;
    if (!icicle || !tree) return;
    const largest = new Set(
      [...icicle.nodes].sort((a, b) => icicle.total[b] - icicle.total[a]).slice(0, LISTED),
    );
    const lists = new Map();
    const top = make("ul", {});
    for (const node of icicle.nodes.filter(each => largest.has(each))) {
      const item = make(
        "li",
        {},
        `${tree.label[node]} · ${humanBytes(icicle.total[node])} · ` +
          percent(icicle.total[node], icicle.bytes),
      );
      const above = lists.get(tree.parent[node]);
      if (above && !above.list) above.item.append((above.list = make("ul", {})));
      (above ? above.list : top).append(item);
      lists.set(node, { item, list: null });
    }
    const rest = icicle.nodes.length - largest.size;
    fill(this.list, top, rest > 0 ? make("p", {}, `${rest} smaller ones are not listed.`) : null);
  }

  /** Tells a cell in words, or the root's for none. @param {Cell | null | undefined} cell */
  read(cell) {
    const [label, held] = this.#told(cell ? cell.node : this.root);
    fill(
      this.reading,
      `${label} · ${humanBytes(held)} · ${percent(held, this.icicle?.bytes ?? 0)}`,
    );
  }

  /** One bar and what is below it over the whole width. @param {number} node −1: all */
  zoom(node) {
    this.root = node;
    if (this.scene) this.draw(this.scene);
  }

  #listen() {
    const under = (/** @type {MouseEvent} */ event) =>
      this.cells.find(
        ({ left, right, row }) =>
          row === Math.floor(event.offsetY / BAR_HEIGHT) &&
          left <= event.offsetX &&
          event.offsetX < right,
      );
    this.canvas.addEventListener("pointermove", event => this.read(under(event)));
    this.canvas.addEventListener("pointerleave", () => this.read(null));
    this.canvas.addEventListener("click", event => {
      const cell = under(event);
      if (cell) this.zoom(cell.node);
    });
  }
}
