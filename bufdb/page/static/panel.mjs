// The panel of the chosen block: all that is known of one value.

/** @import {Content} from "./dom.mjs" */
/** @import {Model} from "./model.mjs" */
import { fill, make, nameOf } from "./dom.mjs";
import { roundCounts } from "./rounds.mjs";
import { savingNodes, stepLink } from "./summary.mjs";
import { counted, humanBytes } from "./text.mjs";
import { originWords } from "./words.mjs";

const USES = 12;
const ALIASES = 6;

/** @param {Model} model @param {number} value */
function stackList(model, value) {
  const frames = model.stack(value);
  if (!frames.length) return "none in this dump";
  const told = frames.map(frame => model.frame(frame));
  const counts = roundCounts(told.map(({ text, path }) => `${text} ${path}`));
  return make(
    "ol",
    { class: "stack" },
    ...told.flatMap(({ text, place: line, path, isOwn }, i) =>
      counts[i] === 0
        ? []
        : make(
            "li",
            isOwn ? {} : { class: "library" },
            nameOf(text),
            " ",
            make("span", { class: "place", title: path }, nameOf(line)),
            counts[i] > 1 ? ` ×${counts[i]}` : "",
          ),
    ),
  );
}

/** @param {Model} model @param {number} value @param {(step: number) => void} choose */
function uses(model, value, choose) {
  const { steps, unscheduled, count } = model.uses(value);
  const told = steps.slice(0, USES);
  if (!count) return "none known";
  return make(
    "span",
    {},
    `${count}: `,
    ...told.flatMap((step, i) => [i ? ", " : "", stepLink(step, choose)]),
    steps.length > told.length ? ` and ${steps.length - told.length} more steps` : "",
    unscheduled ? `, ${unscheduled} outside the schedule` : "",
  );
}

/** @param {Model} model @param {number} value */
function size(model, value) {
  const padding = model.column("value_padding")[value] - 1;
  return (
    humanBytes(model.column("value_size")[value]) +
    (padding > 0
      ? `, ${humanBytes(padding)} of it padding`
      : padding < 0
        ? ", padding unknown"
        : ", no padding")
  );
}

/** @param {Model} model @param {number} value @param {number} block */
function place(model, value, block) {
  const kind = model.textOf("value_kind", value).replaceAll("_", " ");
  if (block < 0 || block >= model.temps) return kind;
  const at = model.blocks.offset[block];
  const arena = model.arenas.findLast(([, base]) => base <= at);
  return arena
    ? `${kind}, offset ${at - arena[1]} in allocation ${arena[0]}`
    : `${kind}, offset ${at}`;
}

/** The other names of the same bytes. @param {Model} model @param {number} value */
function others(model, value) {
  const names = model
    .aliases(value)
    .filter(other => other !== value)
    .map(other => model.name(other));
  const rest = names.length - ALIASES;
  return names.slice(0, ALIASES).join(", ") + (rest > 0 ? ` and ${counted(rest, "other")}` : "");
}

/**
 * What is told of a value: a term and what it is; what is empty is left out.
 * @param {Model} model
 * @param {number} value
 * @param {string} where
 * @param {(step: number) => void} choose
 * @returns {[string, Content][]}
 */
function factsOf(model, value, where, choose) {
  const buffer = model.buffer(value);
  const [start, end] = model.live(value);
  const [from, to] = model.bufferLife(buffer);
  const saving = model.valueSavings.get(buffer);
  const line = model.textOf("value_line", value);
  const span = (/** @type {number} */ first, /** @type {number} */ last) =>
    make("span", {}, stepLink(first, choose), " to ", stepLink(last, choose));
  /** @type {[string, Content][]} */
  const facts = [
    ["shape", nameOf(model.textOf("value_shape", value) || "unknown")],
    ["dtype", nameOf(model.textOf("value_dtype", value) || "unknown")],
    ["size", size(model, value)],
    ["live", span(start, end)],
    ["bytes held", from < start || to > end ? span(from, to) : ""],
    ["held as", where],
    ["if gone", saving ? savingNodes(saving, model, choose) : "unknown: see the table savings"],
    ["line", make("span", { title: line }, nameOf(model.line(value) || "none"))],
    ["loop", originWords(model, value)],
    ["category", nameOf(model.textOf("value_category", value) || "none")],
    ["opcode", nameOf(model.textOf("value_opcode", value) || "unknown")],
    ["op path", nameOf(model.opPath(model.column("value_scope")[value]) || "none in this dump")],
    ["stack", stackList(model, value)],
    ["uses", uses(model, value, choose)],
    ["same bytes", others(model, value)],
  ];
  return facts.filter(([, told]) => told !== "");
}

/**
 * @param {HTMLElement} box
 * @param {Model} model
 * @param {number} block
 * @param {(step: number) => void} choose
 */
export function showBlock(box, model, block, choose) {
  if (block < 0) {
    fill(
      box,
      make(
        "p",
        { class: "hint" },
        "Choose a block or a row for its name, size, life, op and source stack.",
      ),
    );
    return;
  }
  const value = model.blocks.value[block];
  const facts = factsOf(model, value, place(model, value, block), choose);
  fill(
    box,
    make("h3", {}, nameOf(model.name(value))),
    make(
      "dl",
      {},
      ...facts.flatMap(([term, told]) => [make("dt", {}, term), make("dd", {}, told)]),
    ),
  );
}
