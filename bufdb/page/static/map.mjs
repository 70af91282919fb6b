// The block map: program order by offset, a rectangle per value. Painting is paint.mjs's; here are
// the canvas, its labels, the outlines of what is chosen, and the pointer.

/** @import {Place, Raster} from "./paint.mjs" */
/** @import {Scene} from "./scene.mjs" */
import { inkOn, pixel } from "./colours.mjs";
import { make } from "./dom.mjs";
import { bySize, paint } from "./paint.mjs";
import { cut, visible } from "./text.mjs";

/**
 * @typedef {{read: (step: number, block: number) => void, leave: () => void,   choose: (step:
 *   number, block: number) => void, pan: (across: number, up: number) => void,   wheel: (event:
 *   WheelEvent, across: number, up: number) => void}} MapActs shares of width and height
 */

const MOST_LABELS = 200;
const PALE_SHARE = 0.16;
const EDGE_SHARE = 0.45;
const REST_MS = 120;
const LEAST_HEIGHT = 4;

/**
 * Of the places of each buffer the widest: one label is enough.
 * @param {Place[]} places
 * @param {(block: number) => number} bufferOf −1: no label
 */
function widest(places, bufferOf) {
  /** @type {Map<number, Place>} */
  const found = new Map();
  for (const place of places) {
    const buffer = bufferOf(place[0]);
    const known = found.get(buffer);
    const isWider = !known || place[3] - place[1] > known[3] - known[1];
    if (buffer >= 0 && isWider) found.set(buffer, place);
  }
  return [...found.values()];
}

export class BlockMap {
  /** @param {HTMLElement} host @param {MapActs} acts */
  constructor(host, acts) {
    this.host = host;
    this.acts = acts;
    this.canvas = host.appendChild(make("canvas", {}));
    this.over = host.appendChild(make("canvas", { class: "over" }));
    this.place = { left: 0, width: 0, height: 0 };
    /** @type {ImageData | null} */
    this.image = null;
    /** @type {Raster} */
    this.raster = { width: 0, height: 0, pixels: new Uint32Array(0), blocks: new Int32Array(0) };
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.rest = undefined;
    this.#listen();
  }

  /** Another module: what is painted first. @param {Scene} scene */
  open(scene) {
    this.order = bySize(scene.model.rectangles);
  }

  /** The place beside the curve's, in CSS pixels. @param {{left: number, width: number}} place */
  resize({ left, width }) {
    this.place = { left, width, height: this.host.clientHeight };
    for (const canvas of [this.canvas, this.over]) {
      canvas.style.left = left + "px";
      canvas.style.width = width + "px";
      canvas.style.height = this.place.height + "px";
    }
  }

  /**
   * Blocks and outlines. While something moves, at one pixel a CSS pixel; sharp again when it
   * rests.
   * @param {Scene} scene
   * @param {boolean} isMoving
   */
  draw(scene, isMoving) {
    clearTimeout(this.rest);
    const sharp = Math.max(1, devicePixelRatio);
    const ratio = isMoving ? 1 : sharp;
    this.#paint(scene, ratio);
    this.outline(scene);
    if (ratio < sharp) this.rest = setTimeout(() => this.#paint(scene, sharp), REST_MS);
  }

  /** @param {Scene} scene @param {number} ratio pixels of the canvas for one of CSS */
  #paint(scene, ratio) {
    const width = Math.round(this.place.width * ratio);
    const height = Math.round(this.place.height * ratio);
    const context = this.canvas.getContext("2d");
    if (!width || !height || !context || !this.order) return;
    if (this.raster.width !== width || this.raster.height !== height || !this.image) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.image = context.createImageData(width, height);
      this.raster = {
        width,
        height,
        pixels: new Uint32Array(this.image.data.buffer),
        blocks: new Int32Array(width * height),
      };
    }
    const { model, groups, colours, hits, view } = scene;
    // Made once, not for each block: inside, edge above, edge on the left.
    const inks = colours.groups.map(hex => {
      const full = pixel(hex);
      const edge = pixel(hex, EDGE_SHARE, colours.ink);
      const pale = pixel(hex, PALE_SHARE, colours.ground);
      return { begins: [full, edge, edge], goesOn: [full, edge, full], pale: [pale, pale, pale] };
    });
    const isPale = (/** @type {number} */ block) =>
      hits !== null && !hits.values[model.blocks.value[block]];
    const labels = paint(
      this.raster,
      model.rectangles,
      this.order,
      view,
      block => {
        const { pale, goesOn, begins } = inks[groups.of[block]];
        return isPale(block) ? pale : model.held.goesOn[block] ? goesOn : begins;
      },
      pixel(colours.hole),
    );
    context.putImageData(this.image, 0, 0);
    this.#arenas(context, scene);
    const named = widest(labels, block =>
      isPale(block) ? -1 : model.buffer(model.blocks.value[block]),
    );
    this.#labels(context, scene, named.slice(-MOST_LABELS), ratio);
  }

  /**
   * Lines between allocations, which share one axis here, as far as they can be told apart.
   * @param {CanvasRenderingContext2D} context
   * @param {Scene} scene
   */
  #arenas(context, { model, view, colours }) {
    const { width, height } = this.raster;
    context.fillStyle = colours.dim;
    const of = (/** @type {number} */ base) =>
      Math.round(height - ((base - view.y0) / (view.y1 - view.y0)) * height);
    const bases = model.arenas.map(([, base]) => of(base));
    bases.slice(1).forEach((y, i) => {
      // Thinner allocations are one stripe of lines.
      const above = bases[i + 2] ?? of(model.arenaBytes);
      if (bases[i] - y >= LEAST_HEIGHT || y - above >= LEAST_HEIGHT) {
        context.fillRect(0, y, width, 1);
      }
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Scene} scene
   * @param {Place[]} places
   * @param {number} ratio
   */
  #labels(context, { model, groups, colours }, places, ratio) {
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "top";
    const letter = context.measureText("n").width;
    for (const [block, left, top, right] of places) {
      const value = model.blocks.value[block];
      const shape = model.textOf("value_shape", value).replace(/\{.*/, "");
      const text = visible(`${shape}  ${model.line(value)}`);
      const room = right - left - 8 * ratio;
      const fits = cut(text, Math.floor(room / letter));
      const shown =
        context.measureText(fits).width <= room
          ? fits
          : cut(text, Math.floor((room / letter) * 0.8));
      context.fillStyle = inkOn(colours.groups[groups.of[block]]);
      context.fillText(shown, left + 4 * ratio, top + 2 * ratio);
    }
  }

  /** The chosen step, the chosen bytes and the block under the pointer. @param {Scene} scene */
  outline({ model, view, step, chosen, hover, colours }) {
    const ratio = Math.max(1, devicePixelRatio);
    const context = this.over.getContext("2d");
    const width = Math.round(this.place.width * ratio);
    const height = Math.round(this.place.height * ratio);
    if (!context || !width) return;
    if (this.over.width !== width) this.over.width = width;
    if (this.over.height !== height) this.over.height = height;
    context.clearRect(0, 0, width, height);
    const x = (/** @type {number} */ at) => ((at - view.t0) / (view.t1 - view.t0)) * width;
    const y = (/** @type {number} */ at) =>
      height - ((at - view.y0) / (view.y1 - view.y0)) * height;
    context.strokeStyle = colours.mark;
    context.lineWidth = ratio;
    context.setLineDash([4 * ratio, 3 * ratio]);
    context.beginPath();
    context.moveTo(x(step + 0.5), 0);
    context.lineTo(x(step + 0.5), height);
    context.stroke();
    context.setLineDash([]);
    /** @type {(box: number[], color: string, line: number) => void} */
    const outlineBox = ([start, end, offset, size], color, line) => {
      context.strokeStyle = color;
      context.lineWidth = line * ratio;
      const wide = Math.max(2, x(end + 1) - x(start));
      const high = Math.max(2, y(offset) - y(offset + size));
      context.strokeRect(x(start), y(offset + size), wide, high);
    };
    for (const box of model.boxesOf(chosen)) {
      // Two lines, so that the outline is seen on every colour.
      outlineBox(box, colours.ground, 5);
      outlineBox(box, colours.ink, 2.5);
    }
    if (hover >= 0 && hover < model.temps) {
      const { start, end, offset, size } = model.rectangles;
      outlineBox([start[hover], end[hover], offset[hover], size[hover]], colours.ink, 2);
    }
  }

  /**
   * The block at a place of the canvas, −1 for none.
   * @param {number} left
   * @param {number} top CSS pixels
   */
  blockAt(left, top) {
    const { width, height, blocks } = this.raster;
    const x = Math.floor((left / this.place.width) * width);
    const y = Math.floor((top / this.place.height) * height);
    return x < 0 || y < 0 || x >= width || y >= height ? -1 : blocks[y * width + x];
  }

  #listen() {
    const { canvas, acts } = this;
    /** @type {{x: number, y: number, isDrag: boolean} | null} */
    let held = null;
    const across = (/** @type {MouseEvent} */ event) => event.offsetX / this.place.width;
    canvas.addEventListener("pointerdown", event => {
      held = { x: event.clientX, y: event.clientY, isDrag: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      if (held && event.buttons) {
        const right = event.clientX - held.x;
        const down = event.clientY - held.y;
        if (!held.isDrag && Math.hypot(right, down) < 5) return;
        held = { x: event.clientX, y: event.clientY, isDrag: true };
        acts.pan(-right / this.place.width, down / this.place.height);
      } else acts.read(across(event), this.blockAt(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointerup", event => {
      if (held && !held.isDrag) {
        acts.choose(across(event), this.blockAt(event.offsetX, event.offsetY));
      }
      held = null;
    });
    canvas.addEventListener("pointercancel", () => {
      held = null;
    });
    canvas.addEventListener("pointerleave", () => acts.leave());
    canvas.addEventListener(
      "wheel",
      event => acts.wheel(event, across(event), 1 - event.offsetY / this.place.height),
      { passive: false },
    );
  }
}
