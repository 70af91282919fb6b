// The first screen: how much, against what limit, who holds it, what to do. It stays that of the
// peak while the pictures show another instant.

/** @import {Model, ModuleRow} from "./model.mjs" */
/** @import {Scene} from "./scene.mjs" */
import { inkOn } from "./colours.mjs";
import { bar, byId, fill, make, nameOf, swatch } from "./dom.mjs";
import { partsOf, shownName } from "./model.mjs";
import { fillTable } from "./table.mjs";
import { humanBytes, percent } from "./text.mjs";
import { needOf, savingWords } from "./words.mjs";

/** @typedef {{choose: (step: number) => void, find: (text: string) => void}} SummaryActs */

const LINES = 6;
const ADVICE = 3;

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

/** The limit of what a device must hold, as a bar and in words. @param {ModuleRow} row */
function limit(row) {
  const { limit_bytes: bytes, limit_name: name } = row;
  const need = needOf(row);
  const box = byId("limit");
  if (bytes === null) {
    fill(box, "limit unknown (--limit sets one)");
    return;
  }
  const share = need / bytes;
  const words = `limit ${humanBytes(bytes)}${name ? ` (${name})` : ""}`;
  fill(
    box,
    words + " ",
    bar([[share > 1 ? "over" : "solid", share]], `${percent(need, bytes)} of the limit`),
    ` ${percent(need, bytes)}`,
  );
}

/** The answer in one sentence. @param {Model} model @param {SummaryActs} acts */
function sentence(model, acts) {
  const { row } = model;
  const [most] = model.lineSavings;
  const parts = [
    make("b", {}, humanBytes(row.peak_bytes)),
    " at ",
    stepLink(model.peakStep, acts.choose),
    ` of ${model.steps - 1}. `,
  ];
  if (most) {
    parts.push(
      "Most is held by ",
      make("b", { title: most[0] }, nameOf(model.short(most[0]))),
      `: ${humanBytes(most[1].held)}, `,
      savingNodes(most[1], model, acts.choose),
      ".",
    );
  } else if (!model.temps) {
    parts.push("All of it is fixed: the program has no temporary values here.");
  }
  fill(byId("answer"), ...parts);
}

/** The peak split by kind and group. @param {Scene} scene */
export function split({ model, groups, stack, colours }) {
  const peak = model.totals[model.peakStep];
  const step = model.peakStep;
  const names = groups.names.map(name => model.short(name));
  /** @type {[string, number, number][]} */
  const parts = model.fixedKinds().map(([kind, bytes]) => [kind, bytes, -1]);
  names.forEach((name, group) =>
    parts.push([
      name,
      stack[group][step] - (group ? stack[group - 1][step] : model.fixed[step]),
      group,
    ]),
  );
  const box = byId("split");
  const held = parts.filter(([, bytes]) => bytes > 0);
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

/**
 * Lines that hold the peak, with what they would save.
 * @param {Model} model
 * @param {SummaryActs} acts
 */
function lines(model, acts) {
  const peak = model.row.peak_bytes;
  const held = [...model.lineSavings].slice(0, LINES);
  byId("lines-section").hidden = !held.length;
  fillTable(
    /** @type {HTMLTableElement} */ (byId("lines")),
    [
      { title: "line" },
      { title: "holds", kind: "figure" },
      { title: "of peak", kind: "figure", isWide: true },
      { title: "", kind: "picture" },
      { title: "if it were gone" },
    ],
    held.map(([name, saving]) => ({
      cells: [
        make("span", { title: name }, nameOf(model.short(name))),
        humanBytes(saving.held),
        percent(saving.held, peak),
        bar(
          [
            ["pale", saving.held / peak],
            ["solid", saving.saves / peak],
          ],
          `holds ${percent(saving.held, peak)}, saves ${percent(Math.max(0, saving.saves), peak)}`,
        ),
        savingNodes(saving, model, acts.choose),
      ],
      act: () => acts.find(model.short(name)),
    })),
  );
}

/** A range where the query has one. @param {unknown} low @param {unknown} high */
function adviceWords(low, high) {
  const saves = Number(high);
  const least = low === undefined || low === null ? null : Number(low);
  return savingWords({ held: saves, saves, step: -1, low: least, kept: "" }, -1).text;
}

/** What to do, by saving: the first rows of the query `advice`. @param {Model} model */
function advice(model) {
  const table = model.tables.find(({ name }) => name === "advice");
  const box = byId("advice");
  const at = (/** @type {string} */ name) =>
    table ? table.columns.findIndex(([column]) => column === name) : -1;
  const rows = table?.rows.slice(0, ADVICE) ?? [];
  box.hidden = !rows.length;
  fill(
    box,
    ...rows.map(row =>
      make(
        "li",
        {},
        make("b", {}, adviceWords(row[at("low_saving_bytes")], row[at("saving_bytes")])),
        ` (${row[at("sureness")]}): `,
        nameOf(`${row[at("advice")] ?? ""}:`),
        row[at("name")] === null ? null : nameOf(` ${model.short(String(row[at("name")]))}`),
      ),
    ),
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
      make("b", {}, humanBytes(row.peak_bytes)),
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
  if (model.hasPeak) {
    sentence(model, acts);
    limit(model.row);
  } else {
    unknown(model);
    if (needOf(model.row) === null) fill(byId("limit"));
    else limit(model.row);
  }
  lines(model, acts);
  advice(model);
  fill(byId("states"), ...states(model).map(text => make("p", {}, text)));
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
  if (model.hasPeak && humanBytes(row.need_bytes) !== humanBytes(row.peak_bytes)) {
    told.push(
      `Needs ${humanBytes(row.need_bytes)}: ${humanBytes(row.peak_bytes)} at the peak, ` +
        `${humanBytes(row.fragmentation_bytes)} of holes in the arena.`,
    );
  }
  return told;
}
