// The pictures of one module and what somebody does in them: each act ends in a method here.

/** @import {Colouring, Model} from "./model.mjs" */
/** @import {Scene} from "./scene.mjs" */
/** @import {TreeKind} from "./tree.mjs" */
import { readColours } from "./colours.mjs";
import { Curve } from "./curve.mjs";
import { byId, fill, nameOf } from "./dom.mjs";
import { needle, search, tally } from "./find.mjs";
import { Flame } from "./flame.mjs";
import { Instant, listPeaks } from "./instant.mjs";
import { BlockMap } from "./map.mjs";
import { COLOURINGS } from "./model.mjs";
import { showBlock } from "./panel.mjs";
import { grouped } from "./scene.mjs";
import { split } from "./summary.mjs";
import { counted, humanBytes, signedBytes } from "./text.mjs";
import { clamp, pan, show, whole, zoomOffsets, zoomSteps } from "./view.mjs";

/** @typedef {{step: number | null, find: string, by?: Colouring, block: string}} Place */

export class Pictures {
  /** @param {() => void} remember called when the place has changed that a link leads to */
  constructor(remember) {
    this.remember = remember;
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {TreeKind} */
    this.treeKind = "stack";
    this.frame = 0;
    this.isMoving = false;
    this.curve = new Curve(byId("curve"), {
      read: step => this.read(step, -1),
      leave: () => this.leave(),
      choose: step => this.choose(step),
      select: (t0, t1) => this.zoomTo(t0, t1),
      wheel: (event, across, up) => this.wheel(event, across, up),
    });
    this.map = new BlockMap(byId("map"), {
      read: (across, block) => this.read(this.stepAt(across), block),
      leave: () => this.leave(),
      choose: (across, block) => this.pick(block, this.stepAt(across)),
      pan: (across, up) => this.pan(across, up),
      wheel: (event, across, up) => this.wheel(event, across, up),
    });
    this.flame = new Flame(byId("flame"), byId("flame-reading"), byId("flame-list"));
    this.instant = new Instant({
      choose: step => this.choose(step),
      pick: (_, block) => this.pick(block),
    });
  }

  /** No module, or one without a peak: nothing is drawn. */
  close() {
    this.scene = null;
    this.#place(false);
    fill(byId("legend"));
    fill(byId("hits"));
  }

  /**
   * Another module.
   *
   * @param {Model} model
   * @param {Place} place
   */
  open(model, { step, find, by, block }) {
    this.#place(true);
    byId("map").hidden = !model.temps;
    const lines = model.column("frame_line").length ? "line" : "op";
    // A link may ask for times that this module does not have.
    const colouring = by && (by !== "time" || model.isTimed) ? by : lines;
    /** @type {HTMLOptionElement} */ (document.querySelector('#by option[value="time"]')).hidden =
      !model.isTimed;
    const scene = {
      model,
      view: whole(this.bounds(model)),
      ...grouped(model, colouring),
      colours: readColours(),
      step: step !== null && step < model.steps ? step : model.peakStep,
      find,
      hits: search(model, needle(find)),
      chosen: -1,
      hover: -1,
    };
    this.scene = scene;
    /** @type {HTMLSelectElement} */ (byId("by")).value = colouring;
    /** @type {HTMLInputElement} */ (byId("find")).value = find;
    const { value } = model.blocks;
    const at = block ? Array.from(value).findIndex(each => model.name(each) === block) : -1;
    if (at >= 0) scene.chosen = model.buffer(value[at]);
    this.map.open(scene);
    this.recolour();
    listPeaks(scene, each => this.choose(each));
    this.panel(at);
    this.flame.open(scene, this.treeKind);
    this.atStep();
    this.sayHits();
  }

  /** @param {boolean} hasPictures */
  #place(hasPictures) {
    for (const id of ["pictures", "instant-section", "flame-section"]) {
      byId(id).hidden = !hasPictures;
    }
    byId("by").toggleAttribute("disabled", !hasPictures);
  }

  /** @param {Model} model */
  bounds(model) {
    return { steps: model.steps, arena: model.arenaBytes };
  }

  /** What depends on colours or on the width. */
  recolour() {
    const { scene } = this;
    if (!scene) return;
    split(scene);
    this.curve.build(scene);
    this.map.resize(this.curve.place);
    this.map.draw(scene, false);
  }

  /** Both pictures, once a frame. @param {boolean} isMoving */
  redraw(isMoving) {
    this.isMoving = isMoving;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.scene) return;
      this.curve.draw(this.scene);
      this.map.draw(this.scene, this.isMoving);
    });
  }

  /** The step at a share of the map's width. @param {number} across */
  stepAt(across) {
    if (!this.scene) return 0;
    const { view, model } = this.scene;
    return Math.max(
      0,
      Math.min(model.steps - 1, Math.floor(view.t0 + across * (view.t1 - view.t0))),
    );
  }

  /**
   * Tells a step in the reading line.
   * @param {number} step
   * @param {number} block under the pointer
   */
  read(step, block) {
    const { scene } = this;
    if (!scene) return;
    const { model } = scene;
    const change = model.totals[step] - (step ? model.totals[step - 1] : 0);
    const name = block < 0 ? "" : model.name(model.blocks.value[block]);
    const instruction = model.instruction(step);
    fill(
      byId("reading"),
      `step ${step} of ${model.steps - 1} · ${humanBytes(model.totals[step])} · ` +
        signedBytes(change),
      instruction ? " · " : "",
      nameOf(instruction),
      name ? " · under the pointer: " : "",
      nameOf(name),
    );
    if (block !== scene.hover) {
      scene.hover = block;
      this.map.outline(scene);
    }
  }

  /** The pointer has left: the line tells the chosen step again. */
  leave() {
    if (this.scene) this.read(this.scene.step, -1);
  }

  /** Chooses an instant. @param {number} step */
  choose(step) {
    const { scene } = this;
    if (!scene) return;
    const { model } = scene;
    scene.step = Math.max(0, Math.min(model.steps - 1, step));
    scene.view = show(scene.view, this.bounds(model), scene.step);
    this.atStep();
    this.flame.show(scene);
    this.sayHits();
    this.redraw(false);
    this.remember();
  }

  /** What the chosen step says. */
  atStep() {
    if (!this.scene) return;
    this.read(this.scene.step, -1);
    this.instant.show(this.scene);
  }

  /** Chooses a block, and with it an instant. @param {number} block −1: lets go
   *  @param {number} [step] */
  pick(block, step) {
    const { scene } = this;
    if (!scene) return;
    scene.chosen = block < 0 ? -1 : scene.model.buffer(scene.model.blocks.value[block]);
    this.panel(block);
    this.choose(step ?? scene.step);
  }

  /** @param {number} block */
  panel(block) {
    if (this.scene) showBlock(byId("panel"), this.scene.model, block, step => this.choose(step));
  }

  /** @param {Colouring} by */
  colour(by) {
    if (!this.scene) return;
    Object.assign(this.scene, grouped(this.scene.model, by));
    /** @type {HTMLSelectElement} */ (byId("by")).value = by;
    this.recolour();
    this.instant.show(this.scene);
    this.remember();
  }

  /** The next colouring. */
  nextColour() {
    const every = COLOURINGS.filter(by => by !== "time" || this.scene?.model.isTimed);
    const at = this.scene ? every.indexOf(this.scene.by) : 0;
    this.colour(every[(at + 1) % every.length]);
  }

  /** The theme or the width is another one. */
  restyle() {
    if (this.scene && byId("curve").clientWidth > 100) {
      this.scene.colours = readColours();
      this.recolour();
      this.flame.draw(this.scene);
    }
  }

  /** @param {string} text */
  find(text) {
    const { scene } = this;
    if (!scene) return;
    scene.find = text;
    scene.hits = search(scene.model, needle(text));
    /** @type {HTMLInputElement} */ (byId("find")).value = text;
    this.instant.show(scene);
    this.flame.draw(scene);
    this.sayHits();
    this.redraw(false);
    this.remember();
  }

  /** Chooses the next block that is found, the largest first. */
  nextHit() {
    const { scene } = this;
    if (!scene?.hits) return;
    const { model, hits, chosen } = scene;
    const { value, start, end, size } = model.blocks;
    const all = [];
    for (let block = 0; block < model.temps; block++) {
      if (hits.values[value[block]]) all.push(block);
    }
    all.sort((a, b) => size[b] - size[a] || a - b);
    // A buffer may have several blocks; the largest is that of the buffer.
    const buffers = all.map(block => model.buffer(value[block]));
    const found = all.filter((_, i) => buffers.indexOf(buffers[i]) === i);
    const at = found.findIndex(block => model.buffer(value[block]) === chosen);
    const next = found[(at + 1) % found.length];
    if (next === undefined) return;
    const isLive = start[next] <= scene.step && scene.step <= end[next];
    this.pick(next, isLive ? scene.step : start[next]);
  }

  /** How much is found, and how much of it lives now. */
  sayHits() {
    const { scene } = this;
    if (!scene?.hits) {
      fill(byId("hits"));
      return;
    }
    const { count, bytes } = tally(scene.model, scene.hits, scene.step);
    fill(byId("hits"), `${counted(count, "value")} found, ${humanBytes(bytes)} at this step`);
  }

  /** @param {number} t0 @param {number} t1 */
  zoomTo(t0, t1) {
    this.look(view => ({ ...view, t0, t1 }));
  }

  /** @param {number} across @param {number} up shares of what is seen */
  pan(across, up) {
    this.look(
      (view, bounds) => pan(view, bounds, across * (view.t1 - view.t0), up * (view.y1 - view.y0)),
      true,
    );
  }

  /** About the chosen step. @param {number} factor */
  zoom(factor) {
    this.look((view, bounds) => zoomSteps(view, bounds, (this.scene?.step ?? 0) + 0.5, factor));
  }

  /**
   * @param {(view: import("./view.mjs").View, bounds: import("./view.mjs").Bounds) =>
   *   import("./view.mjs").View} change
   * @param {boolean} [isMoving]
   */
  look(change, isMoving = false) {
    if (!this.scene) return;
    const bounds = this.bounds(this.scene.model);
    this.scene.view = clamp(change(this.scene.view, bounds), bounds);
    this.redraw(isMoving);
  }

  /** Zooms where the pointer is; over a page that is read, the wheel scrolls it.
   *  @param {WheelEvent} event @param {number} across @param {number} up */
  wheel(event, across, up) {
    const isActive = byId("pictures").contains(document.activeElement) || event.ctrlKey;
    byId("wheel-hint").hidden = isActive;
    if (!isActive) return;
    event.preventDefault();
    const factor = Math.exp(event.deltaY * 0.0015);
    this.look((view, bounds) => {
      const step = view.t0 + across * (view.t1 - view.t0);
      const offset = view.y0 + up * (view.y1 - view.y0);
      const wide = event.shiftKey ? view : zoomSteps(view, bounds, step, factor);
      return event.shiftKey || event.ctrlKey ? zoomOffsets(wide, bounds, offset, factor) : wide;
    }, true);
  }

  /** The next peak in program order, or the one before. @param {number} direction 1 or −1 */
  nextPeak(direction) {
    const { scene } = this;
    if (!scene) return;
    const steps = scene.model.peaks
      .map(({ step }) => step)
      .filter(step => (step - scene.step) * direction > 0);
    if (steps.length) this.choose(direction > 0 ? Math.min(...steps) : Math.max(...steps));
  }

  /** @param {TreeKind} kind */
  tree(kind) {
    this.treeKind = kind;
    if (this.scene) this.flame.open(this.scene, kind);
  }

  /** Lets go of what is found and chosen. */
  letGo() {
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    if (!this.scene) return;
    this.scene.chosen = -1;
    this.panel(-1);
    this.find("");
  }
}
