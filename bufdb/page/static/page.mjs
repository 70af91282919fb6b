// The page: which module of the report is open, by the table, the list, the comparison or a link.

/** @import {Colouring, ModuleRow} from "./model.mjs" */
/** @import {Place} from "./pictures.mjs" */
import { Courses } from "./course.mjs";
import { decode, unpack } from "./decode.mjs";
import { Comparison } from "./diff.mjs";
import { byId, fill, make, nameOf } from "./dom.mjs";
import { fromHash, toHash } from "./link.mjs";
import { COLOURINGS, linkName, Model, moduleRows, shownName } from "./model.mjs";
import { Modules } from "./modules.mjs";
import { Pictures } from "./pictures.mjs";
import { showTables } from "./saved.mjs";
import { peakText, summarize } from "./summary.mjs";
import { visible } from "./text.mjs";
import { needWords } from "./words.mjs";

const KEPT_MODELS = 6;

/**
 * Head and columns of a slot.
 *
 * @param {number} slot
 */
export async function readSlot(slot) {
  return decode(await unpack(byId("slot-" + slot).textContent ?? ""));
}

export class Page {
  /** @param {any} report head of slot 0 */
  constructor(report) {
    this.rows = moduleRows(report.modules);
    /** @type {Map<ModuleRow, Model>} those opened last */
    this.models = new Map();
    /** @type {ModuleRow | null} */
    this.asked = null;
    this.link = "";
    this.pictures = new Pictures(() => this.remember());
    this.modules = new Modules(this.rows, row => this.open(row));
    this.courses = new Courses(report.courses, report.other_course_count);
    this.select = /** @type {HTMLSelectElement} */ (byId("module"));
    this.rows.forEach((row, i) =>
      this.select.append(
        make("option", { value: String(i) }, `${shownName(row)} · ${needWords(row)}`),
      ),
    );
    this.comparison =
      report.diff &&
      new Comparison(report.diff, this.rows, {
        load: row => this.load(row).catch(() => null),
        open: row => this.open(row, { isAway: true }),
      });
  }

  /** The module of a row; null if the page does not carry it. @param {ModuleRow} row */
  async load(row) {
    if (row.slot === null) return null;
    const known = this.models.get(row);
    if (known) return known;
    const { head, columns } = await readSlot(row.slot);
    const model = new Model(row, head, columns);
    this.models.set(row, model);
    for (const oldest of [...this.models.keys()].slice(0, -KEPT_MODELS)) this.models.delete(oldest);
    return model;
  }

  /**
   * Shows another module, at its peak unless something else is asked for.
   * @param {ModuleRow} row
   * @param {Partial<Place> & {isAway?: boolean}} [at] `isAway`: what was clicked is far from what
   *   it   changes
   */
  async open(row, { isAway, ...at } = {}) {
    this.asked = row;
    this.select.value = String(this.rows.indexOf(row));
    let model = null;
    let fault = row.left_out;
    try {
      model = await this.load(row);
    } catch (error) {
      fault = `its data cannot be read: ${error instanceof Error ? error.message : error}`;
    }
    // Somebody may have asked for another one meanwhile.
    if (this.asked !== row) return;
    this.modules.choose(row);
    if (isAway) byId("title").scrollIntoView();
    const { scene } = this.pictures;
    if (!model) this.absent(row, fault);
    else {
      this.present(model, { step: null, find: scene?.find ?? "", by: scene?.by, block: "", ...at });
    }
    document.title = visible(`${shownName(row)} – bufdb report`);
    this.remember();
  }

  /** A module that the page does not carry. @param {ModuleRow} row @param {string | null} fault */
  absent(row, fault) {
    this.pictures.close();
    summarize(new Model(row, {}, {}), { choose: () => {}, find: () => {} });
    fill(
      byId("answer"),
      make("b", {}, peakText(row)),
      row.peak_time === null ? "" : ` at step ${row.peak_time} of ${row.length}`,
      ". Not on this page: ",
      nameOf(fault ?? row.unknown_reason ?? "no data"),
      ". ",
      make("code", {}, row.command ?? ""),
    );
    fill(byId("tables"));
  }

  /**
   * A module with its data.
   *
   * @param {Model} model
   * @param {Place} at
   */
  present(model, at) {
    const { pictures } = this;
    summarize(model, {
      choose: step => pictures.choose(step),
      find: text => pictures.find(text),
    });
    showTables(byId("tables"), model);
    if (model.hasPeak) pictures.open(model, at);
    else pictures.close();
  }

  /** The theme or the width is another one. */
  restyle() {
    this.pictures.restyle();
    this.courses.draw();
    this.comparison?.draw();
  }

  /** What the link of this place is. */
  remember() {
    if (!this.asked) return;
    const { scene } = this.pictures;
    const chosen = scene && scene.chosen >= 0 ? scene.model.name(scene.chosen) : "";
    this.link = toHash({
      module: linkName(this.asked),
      by: scene?.by ?? COLOURINGS[0],
      find: scene?.find ?? "",
      step: scene && scene.step !== scene.model.peakStep ? scene.step : null,
      block: chosen,
    });
    history.replaceState(null, "", this.link);
  }

  /** Goes where the link says; to the largest peak if it says nothing or what is not here. */
  async follow() {
    if (location.hash && location.hash === this.link) return;
    const { module, step, by, find, block } = fromHash(location.hash, COLOURINGS);
    const row = this.rows.find(each => linkName(each) === module);
    fill(
      byId("link-fault"),
      module && !row
        ? make(
            "p",
            {},
            "This report has no module ",
            nameOf(module),
            "; shown is that with the highest peak.",
          )
        : null,
    );
    const first = row ?? this.rows[this.comparison?.first ?? 0];
    const isAsked = new URLSearchParams(location.hash.slice(1)).has("by");
    if (first) {
      await this.open(first, {
        step: row || !module ? step : null,
        find,
        block,
        ...(isAsked ? { by: /** @type {Colouring} */ (by) } : {}),
      });
    }
  }
}
