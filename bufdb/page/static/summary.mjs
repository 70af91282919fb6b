// The first screen: how much, against what limit, what holds it, what to do. Figures and wording
// are those of `bufdb summary`; they stay those of the peak while pictures show another instant.

/** @import {Model, ModuleRow} from "./model.mjs" */
/** @import {Scene} from "./scene.mjs" */
import { inkOn } from "./colours.mjs";
import { bar, byId, fill, make, nameOf, swatch } from "./dom.mjs";
import { partsOf, shownName } from "./model.mjs";
import { peakParts } from "./scene.mjs";
import { fillTable } from "./table.mjs";
import { humanBytes, percent } from "./text.mjs";
import { savingWords } from "./words.mjs";

/** @typedef {{choose: (step: number) => void, find: (text: string) => void}} SummaryActs */
/** @typedef {{name: string, text: string, strong: string, style: string | null,
 *   ratio: number | null}} Sentence */
/** @typedef {{name: string, size_bytes: number, size: string, ratio: number, share: string,
 *   notes: [string, string][], saving_bytes: number | null, saving: string}} Figure */
/** @typedef {{name: string, heading: string, figures: Figure[], notes: string[],
 *   has_bars: boolean}} Section */

const LIMIT = ["limit", "device", "taken"];
const ELSEWHERE = ["peak", ...LIMIT];

/** A link to a step. @param {number} step @param {(step: number) => void} choose */
export function stepLink(step, choose) {
  const link = make("button", { type: "button", class: "step" }, `step ${step}`);
  link.addEventListener("click", event => {
    event.stopPropagation();
    choose(step);
  });
  return link;
}

/** What is saved, with its step as a link. @param {import("./model.mjs").Saving | undefined} saving
 *  @param {Model} model @param {(step: number) => void} choose */
export function savingNodes(saving, model, choose) {
  if (!saving) return make("span", {});
  const { text, step, rest } = savingWords(saving, model.peakStep);
  return make("span", {}, text, ...(step === null ? [] : [stepLink(step, choose)]), rest);
}

/** Sentences of a module's summary. @param {ModuleRow} row @returns {Sentence[]} */
function sentences(row) {
  return row.sentences ?? [];
}

/** The limit of what a device must hold, in words and as a bar. @param {ModuleRow} row */
function limit(row) {
  const said = sentences(row).filter(({ name }) => LIMIT.includes(name));
  fill(
    byId("limit"),
    ...said.flatMap(({ text, ratio }) => [
      make("span", {}, nameOf(text)),
      ratio === null ? null : bar([[ratio > 1 ? "over" : "solid", ratio]], text),
    ]),
  );
}

/** The peak in words. @param {ModuleRow} row */
export function peakText(row) {
  const said = sentences(row).find(({ name }) => name === "peak");
  return said ? said.strong || said.text : "peak unknown";
}

/** What is saved without a line: the summary's words, with the step as a link. @param {Figure} line
 *  @param {Model} model @param {(step: number) => void} choose */
function lineSaving(line, model, choose) {
  const saving = model.lineSavings.get(line.name);
  if (!saving || line.saving_bytes === null) return make("span", {}, line.saving);
  const held = { ...saving, held: line.size_bytes, saves: line.saving_bytes };
  const { text, step, rest } = savingWords(held, model.peakStep, line.saving);
  return make("span", {}, text, ...(step === null ? [] : [stepLink(step, choose)]), rest);
}

/** The answer in one sentence. @param {Model} model @param {SummaryActs} acts */
function sentence(model, acts) {
  const parts = [
    make("b", {}, peakText(model.row)),
    " at ",
    stepLink(model.peakStep, acts.choose),
    ` of ${model.steps - 1}. `,
  ];
  const most = model.sections.find(({ name }) => name === "lines")?.figures[0];
  if (most) {
    const saving = most.saving ? [", ", lineSaving(most, model, acts.choose)] : [];
    parts.push(
      "Most is held by ",
      make("b", { title: most.name }, nameOf(model.short(most.name))),
      `: ${most.size}, ${most.share}`,
      ...saving,
      ".",
    );
  }
  if (!model.temps) {
    parts.push(" All of it is fixed: the program has no temporary values here.");
  }
  fill(byId("answer"), ...parts);
}

/** The peak split by kind and group. @param {Scene} scene */
export function split(scene) {
  const { model, groups, colours } = scene;
  const peak = model.totals[model.peakStep];
  const names = groups.names.map(name => model.short(name));
  const box = byId("split");
  const held = peakParts(scene);
  fill(
    box,
    ...held.map(([name, bytes, group]) => {
      const piece = make(
        "span",
        { title: `${name} ${humanBytes(bytes)} ${percent(bytes, peak)}` },
        nameOf(`${name} ${humanBytes(bytes)}`),
      );
      piece.style.width = (100 * bytes) / peak + "%";
      piece.style.background = `var(${group < 0 ? "--fixed" : "--g" + group})`;
      piece.style.color = inkOn(group < 0 ? colours.fixed : colours.groups[group]);
      return piece;
    }),
  );
  box.setAttribute(
    "aria-label",
    held.map(([name, bytes]) => `${name} ${humanBytes(bytes)}`).join(", "),
  );
  fill(
    byId("legend"),
    ...[["fixed", -1], ...names.map((name, group) => [name, group])].map(([name, group]) =>
      make("span", {}, swatch(Number(group)), nameOf(String(name))),
    ),
  );
}

/** The low end of a saving and what to do, below a name. @param {[string, string][]} notes */
function noteNodes(notes) {
  return notes.map(([low, text]) =>
    make("div", { class: "note" }, low ? make("b", {}, low) : null, low ? " " : null, nameOf(text)),
  );
}

/**
 * @param {Figure} figure @param {Section} section
 * @param {Model} model @param {SummaryActs} acts
 */
function figureCells(figure, section, model, acts) {
  const name = make(
    "span",
    { title: figure.name },
    nameOf(model.short(figure.name)),
    ...noteNodes(figure.notes),
  );
  const cells = [name, figure.size, figure.share];
  if (section.has_bars) {
    const saves = Math.max(0, figure.saving_bytes ?? 0) / model.row.peak_bytes;
    const label = `${figure.share}${figure.saving ? `, ${figure.saving}` : ""}`;
    cells.push(
      bar(
        [
          ["pale", figure.ratio],
          ["solid", saves],
        ],
        label,
      ),
    );
  }
  if (section.name === "lines") cells.push(lineSaving(figure, model, acts.choose));
  return cells;
}

/** One section of the summary. @param {Section} section @param {Model} model
 *  @param {SummaryActs} acts */
function sectionNode(section, model, acts) {
  const element = make("table", { id: section.name });
  const isOfLines = section.name === "lines";
  fillTable(
    element,
    [
      { title: isOfLines ? "line" : "" },
      { title: section.has_bars ? "holds" : "saves", kind: "figure" },
      { title: "of peak", kind: "figure", isWide: true },
      ...(section.has_bars ? [{ title: "", kind: /** @type {"picture"} */ ("picture") }] : []),
      ...(isOfLines ? [{ title: "if it were gone" }] : []),
    ],
    section.figures.map(figure => ({
      cells: figureCells(figure, section, model, acts),
      ...(isOfLines ? { act: () => acts.find(model.short(figure.name)) } : {}),
    })),
  );
  const key =
    "Pale: what a line holds; solid: what the peak would lose without it in today's schedule. " +
    "A new compilation may schedule differently.";
  return make(
    "section",
    {},
    make("h2", {}, section.heading),
    section.figures.length ? element : null,
    ...section.notes.map(note => make("p", {}, nameOf(note))),
    isOfLines ? make("p", { class: "dim" }, key) : null,
  );
}

/** What is known where the peak or its instant is not: sizes, and why. @param {Model} model */
function unknown(model) {
  const { row } = model;
  if (row.peak_bytes === null) {
    fill(
      byId("answer"),
      make("b", {}, "Peak unknown: "),
      nameOf(row.unknown_reason ?? "the dump does not have it"),
      ".",
    );
  } else {
    fill(
      byId("answer"),
      make("b", {}, peakText(row)),
      " at the peak. A message in a log has no instant: no curve, no map.",
    );
  }
  const total = Math.max(1, row.total_bytes);
  const parts = partsOf(row).filter(([, bytes]) => bytes > 0);
  fill(
    byId("split"),
    ...parts.map(([name, bytes]) => {
      const piece = make(
        "span",
        { title: `${name} ${humanBytes(bytes)}` },
        `${name} ${humanBytes(bytes)}`,
      );
      piece.style.width = (100 * bytes) / total + "%";
      piece.style.background = "var(--fixed)";
      return piece;
    }),
  );
  byId("split").setAttribute(
    "aria-label",
    parts.map(([name, bytes]) => `${name} ${humanBytes(bytes)}`).join(", "),
  );
}

/**
 * All of the first screen but the colours, which `split` draws.
 * @param {Model} model
 * @param {SummaryActs} acts
 */
export function summarize(model, acts) {
  fill(byId("title"), nameOf(shownName(model.row)));
  // A function may have been compiled many times: the key tells which one this is.
  fill(byId("module-key"), nameOf(model.row.module_key));
  if (model.hasPeak) sentence(model, acts);
  else unknown(model);
  limit(model.row);
  fill(byId("sections"), ...model.sections.map(section => sectionNode(section, model, acts)));
  fill(byId("states"), ...states(model).map(text => make("p", {}, nameOf(text))));
}

/** What is missing from the pictures, and why. @param {Model} model */
function states(model) {
  const told = [];
  const { row } = model;
  if (!model.hasPeak && row.peak_bytes !== null) {
    told.push("Sizes are of allocations. The tables have what is known of the peak.");
  } else if (!model.hasPeak) {
    told.push(
      "Sizes are of allocations, live or not. Live ranges are in …-live-range.txt, which XLA " +
        "writes next to the buffer assignment with --xla_dump_to and --xla_dump_hlo_as_text.",
    );
  } else if (!model.temps) {
    told.push("No temporary values live in this memory space, so there is no map.");
  }
  if (model.hasPeak && model.temps && !model.column("frame_line").length) {
    told.push("No source lines in this dump: the XLA text of the module is missing, or has none.");
  }
  for (const { name, text } of sentences(row)) {
    if (!ELSEWHERE.includes(name) && (name !== "unknown" || model.hasPeak)) told.push(text);
  }
  return told;
}
