// Figures in sentences.

/** @import {Model, ModuleRow, Saving} from "./model.mjs" */
import { humanBytes } from "./text.mjs";

/**
 * What becomes of the peak if something were gone, in parts: text, and the step to link.
 * @param {Saving} saving
 * @param {number} peakStep
 * @param {string} [saved] how much, if that is worded already
 * @returns {{text: string, step: number | null, rest: string}}
 */
export function savingWords({ held, saves, step, low, kept }, peakStep, saved) {
  if (saves <= 0) {
    return {
      text: `${saved ?? "saves nothing"}: `,
      step,
      rest: step === peakStep ? "" : " is as high",
    };
  }
  const least =
    low === null || low === saves ? "" : low > 0 ? `${humanBytes(low)} to ` : "nothing to ";
  const amount = saved ?? `saves ${least}${humanBytes(saves)}`;
  const text = `${amount}${least && kept ? ` (keeps ${kept})` : ""}`;
  if (saves >= held || step === peakStep) return { text, step: null, rest: "" };
  return { text: `${text}; the peak would then be at `, step, rest: "" };
}

/**
 * The residual, carry or slice that a value is, in words; "" where loops have nothing to do with
 * it.
 * @param {Model} model
 * @param {number} value
 */
export function originWords(model, value) {
  const named = [value, ...model.aliases(value)].find(each => model.origins.has(each));
  if (named === undefined) return "";
  const row = model.origins.get(named) ?? 0;
  const number = (/** @type {string} */ name) => model.column("origin_" + name)[row] - 1;
  const text = (/** @type {string} */ name) => model.short(model.textOf("origin_" + name, row));
  const flags = model.column("origin_flags")[row];
  const what = flags & 2 ? "layer input" : flags & 1 ? "residual" : text("kind");
  const count = number("slice_count");
  const bytes = number("slice_bytes");
  const slices =
    count > 0 && bytes > 0
      ? `, ${count} × ${humanBytes(bytes)}` + (text("slice_shape") ? ` ${text("slice_shape")}` : "")
      : "";
  const trips = number("trip_count") > 0 ? `, ${number("trip_count")} trips` : "";
  const loop = text("loop_line")
    ? `, by the loop of ${text("loop_line")}`
    : text("loop")
      ? `, by the loop ${text("loop")}`
      : "";
  return (
    `${what}${text("line") ? ` of ${text("line")}` : ""}${slices}${loop}${trips}` +
    (flags & 4 ? " (the walk to it had to choose)" : "")
  );
}

/**
 * What a device must hold; of a module of which the peak alone is known, at least that.
 * @param {ModuleRow} row
 */
export function needOf(row) {
  return row.need_bytes ?? row.peak_bytes;
}

/** @param {ModuleRow} row */
export function needWords(row) {
  const need = needOf(row);
  if (need === null) return "need unknown";
  return row.need_bytes === null ? `at least ${humanBytes(need)}` : humanBytes(need);
}

/** @param {ModuleRow} row */
export function peakWords(row) {
  return row.peak_bytes === null ? "peak unknown" : humanBytes(row.peak_bytes);
}
