// One module in one memory space: what its slot's columns say, by name. The figures are those of
// the database; the only sums made here are those of blocks, of which each byte is one block's at a
// step.

/** @import {Columns} from "./decode.mjs" */
/** @import {Rectangles} from "./paint.mjs" */
import { pathsIn, shortener } from "./paths.mjs";

/** @typedef {{name: string, title: string, command: string, columns: [string, string][],
 *   rows: (string | number | boolean | null)[][], is_cut: boolean, note: string | null}} Table
 *  the answer of a saved query, as it gave it */
/** @typedef {{[column: string]: any}} ModuleRow a row of the report's modules, by column */
/** @typedef {{step: number, bytes: number, valley: number | null}} Peak */
/**
 * @typedef {{held: number, saves: number, step: number, low: number | null, kept: string}} Saving
 * `step`: which then is the highest; `low`: what comes at the least, null where that is not known;
 * `kept`: lines whose values are kept then
 */

export const COLOURINGS = /** @type {const} */ (["line", "category", "op", "dtype", "time"]);
/** @typedef {(typeof COLOURINGS)[number]} Colouring */

/**
 * The rows of a report's table of modules, by column.
 * @param {{columns: string[], rows: any[][]}} table
 * @returns {ModuleRow[]}
 */
export function moduleRows({ columns, rows }) {
  return rows.map(row => Object.fromEntries(columns.map((column, i) => [column, row[i]])));
}

/** "run/key/space": what a link calls a module. @param {ModuleRow} row */
export function linkName(row) {
  return `${row.run}/${row.module_key}/${row.space}`;
}

/** "run › function · space": what a reader calls a module. @param {ModuleRow} row */
export function shownName(row) {
  return `${row.run} › ${row.function} · ${row.space}`;
}

/**
 * The allocations of a module by kind: bytes that two of them share are counted once.
 * @param {ModuleRow} row
 * @returns {[string, number][]}
 */
export function partsOf(row) {
  return [
    ["arguments", row.argument_bytes],
    ["outputs", row.output_bytes - row.alias_bytes],
    ["constants", row.constant_bytes],
    ["temps", row.temp_bytes],
  ];
}

/** Cumulative sums, one more than there are numbers. @param {ArrayLike<number>} counts */
function starts(counts) {
  const sums = new Float64Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) sums[i + 1] = sums[i] + counts[i];
  return sums;
}

export class Model {
  /** @param {ModuleRow} row @param {any} head @param {Columns} columns */
  constructor(row, head, columns) {
    const column = (/** @type {string} */ name) => columns[name] ?? new Float64Array(0);
    this.row = row;
    this.column = column;
    /** @type {string[]} */
    this.text = head.text ?? [];
    /** @type {Table[]} */
    this.tables = head.tables ?? [];
    /** @type {import("./summary.mjs").Section[]} what `bufdb summary` shows of it */
    this.sections = head.sections ?? [];
    /** @type {string} with QUERY in place of a query's name */
    this.command = head.command ?? "";
    /** @type {[index: number, base: number, size: number][]} */
    this.arenas = head.arena ?? [];
    this.arenaBytes = Number(head.arena_bytes ?? 0);
    this.steps = Number(row.length) + 1;
    this.values = column("value_id").length;
    const start = column("block_start");
    const last = column("block_last");
    this.blocks = {
      value: column("block_value"),
      start,
      offset: column("block_offset"),
      size: column("block_size"),
      end: last.map((steps, i) => start[i] + steps),
    };
    // Blocks without an offset are fixed; they come last.
    const fixed = this.blocks.offset.indexOf(-1);
    this.temps = fixed < 0 ? start.length : fixed;
    this.held = this.#held();
    this.totals = this.#sums(0, start.length);
    this.fixed = this.#sums(this.temps, start.length);
    /** @type {Rectangles} the blocks of the map */
    this.rectangles = {
      start: start.subarray(0, this.temps),
      end: this.blocks.end.subarray(0, this.temps),
      offset: this.blocks.offset.subarray(0, this.temps),
      size: this.blocks.size.subarray(0, this.temps),
    };
    const files = Array.from(column("frame_file"), file => this.text[file] ?? "");
    const lines = new Set(column("value_line"));
    /** A text that names source lines, with short paths. */
    this.short = shortener([
      ...files,
      ...[...lines].flatMap(line => pathsIn(this.text[line] ?? "")),
    ]);
    this.useStarts = starts(column("value_uses"));
    this.origins = new Map(Array.from(column("origin_value"), (value, i) => [value, i]));
    this.peaks = this.#peaks();
    this.peakStep = row.peak_time ?? this.peaks[0]?.step ?? 0;
    /** @type {Map<string, Saving>} by source line, most held first */
    this.lineSavings = new Map();
    /** @type {Map<number, Saving>} by the first value of a buffer */
    this.valueSavings = new Map();
    this.#readSavings();
  }

  /** Whether the peak and its instant are known, so that there is something to draw. */
  get hasPeak() {
    return this.row.peak_time !== null && this.blocks.start.length > 0;
  }

  /** Bytes of blocks at every step. @param {number} from @param {number} to */
  #sums(from, to) {
    const sums = new Float64Array(this.steps + 1);
    const { start, end, size } = this.blocks;
    for (let i = from; i < to; i++) {
      sums[start[i]] += size[i];
      sums[end[i] + 1] -= size[i];
    }
    for (let step = 1; step < this.steps; step++) sums[step] += sums[step - 1];
    return sums.subarray(0, this.steps);
  }

  /**
   * Of each buffer the steps that its blocks reach over, and of each block whether it goes on
   * with what the buffer held just before.
   */
  #held() {
    const { start, end, offset, value } = this.blocks;
    const first = new Float64Array(this.values).fill(Infinity);
    const last = new Float64Array(this.values).fill(-1);
    /** @type {Map<number, number[]>} */
    const blocks = new Map();
    for (let block = 0; block < start.length; block++) {
      const buffer = this.buffer(value[block]);
      first[buffer] = Math.min(first[buffer], start[block]);
      last[buffer] = Math.max(last[buffer], end[block]);
      const known = blocks.get(buffer);
      if (known) known.push(block);
      else blocks.set(buffer, [block]);
    }
    const goesOn = new Uint8Array(start.length);
    for (const list of blocks.values()) {
      if (list.length === 1) continue;
      const ends = new Set(list.map(block => `${end[block] + 1} ${offset[block]}`));
      for (const block of list) {
        goesOn[block] = Number(ends.has(`${start[block]} ${offset[block]}`));
      }
    }
    return { first, last, goesOn };
  }

  /** @returns {Peak[]} by height */
  #peaks() {
    const bytes = this.column("peak_bytes");
    const valley = this.column("peak_valley");
    return Array.from(this.column("peak_time"), (step, i) => ({
      step,
      bytes: bytes[i],
      valley: valley[i] > 0 ? valley[i] - 1 : null,
    }));
  }

  #readSavings() {
    const column = this.column;
    const held = column("saving_held");
    const bytes = column("saving_bytes");
    const time = column("saving_time");
    const value = column("saving_value");
    const what = column("saving_what");
    const low = column("saving_low");
    const form = column("saving_form");
    for (const i of Array.from(what.keys()).sort((a, b) => held[b] - held[a] || a - b)) {
      const saving = {
        held: held[i],
        saves: bytes[i],
        step: time[i],
        low: form[i] < 0 ? null : low[i],
        kept: this.short(this.textOf("saving_kept", i)),
      };
      if (this.text[what[i]] === "source_line") {
        this.lineSavings.set(this.textOf("saving_name", i), saving);
      } else if (value[i] >= 0) {
        this.valueSavings.set(this.buffer(value[i]), saving);
      }
    }
  }

  /**
   * The command of a saved query about this module.
   * @param {string} query @param {number} [step] another instant than the peak
   */
  queryCommand(query, step) {
    const isPeak = step === undefined || step === this.peakStep;
    return this.command.replace("QUERY", query) + (isPeak ? "" : ` -p step=${step}`);
  }

  /** The line that a value is attributed to, its path shortened. @param {number} value */
  line(value) {
    return this.short(this.textOf("value_line", value));
  }

  /** The text that a column has for a row, "" for none. @param {string} name @param {number} row */
  textOf(name, row) {
    return this.text[this.column(name)[row]] ?? "";
  }

  /** @param {number} value */
  name(value) {
    const number = this.column("value_number")[value];
    return (
      this.textOf("value_stem", value) +
      (number > 0 ? "." + (number - 1) : "") +
      this.textOf("value_index", value)
    );
  }

  /** The instruction at a step, "" where the dump tells none. @param {number} step */
  instruction(step) {
    const number = this.column("step_number")[step];
    return this.textOf("step_stem", step) + (number > 0 ? "." + (number - 1) : "");
  }

  /** The first of the values that are the same bytes. @param {number} value */
  buffer(value) {
    return value - this.column("value_buffer")[value];
  }

  /** The values that are the same bytes as this one, itself included. @param {number} value */
  aliases(value) {
    const buffer = this.buffer(value);
    const found = [];
    for (let other = 0; other < this.values; other++) {
      if (this.buffer(other) === buffer) found.push(other);
    }
    return found;
  }

  /** First and last live step of a value. @param {number} value @returns {[number, number]} */
  live(value) {
    const start = this.column("value_start")[value];
    return [start, start + this.column("value_last")[value]];
  }

  /**
   * First and last step at which a buffer's bytes are held, under whatever name.
   * @param {number} buffer
   * @returns {[number, number]}
   */
  bufferLife(buffer) {
    return [this.held.first[buffer], this.held.last[buffer]];
  }

  /** The rectangles of a buffer on the map, those that go on at the same place as one.
   * @param {number} buffer @returns {number[][]} first step, last step, offset, size */
  boxesOf(buffer) {
    /** @type {number[][]} */
    const boxes = [];
    const { start, end, offset, size } = this.rectangles;
    for (let block = 0; buffer >= 0 && block < this.temps; block++) {
      if (this.buffer(this.blocks.value[block]) !== buffer) continue;
      const before = boxes.find(
        box => box[1] + 1 === start[block] && box[2] === offset[block] && box[3] === size[block],
      );
      if (before) before[1] = end[block];
      else boxes.push([start[block], end[block], offset[block], size[block]]);
    }
    return boxes;
  }

  /** Whether a block lives at a step. @param {number} block @param {number} step */
  lives(block, step) {
    return this.blocks.start[block] <= step && step <= this.blocks.end[block];
  }

  /** A path from the root of the trie of ops. @param {number} node */
  opPath(node) {
    const parts = [];
    for (let at = node; at >= 0; at = this.column("op_parent")[at]) {
      parts.push(this.textOf("op_text", at));
    }
    return parts.reverse().join("/");
  }

  /**
   * A frame of a stack: its function, its line in short and with the whole path.
   *
   * @param {number} frame
   */
  frame(frame) {
    const line = this.column("frame_line")[frame];
    const path = this.textOf("frame_file", frame) + (line > 0 ? ":" + line : "");
    return {
      text: this.textOf("frame_function", frame),
      place: this.short(path),
      path,
      isOwn: this.column("frame_own")[frame] === 1,
    };
  }

  /** The frames of a value's stack, innermost first. @param {number} value */
  stack(value) {
    const frames = [];
    for (
      let at = this.column("value_frame")[value];
      at >= 0;
      at = this.column("frame_parent")[at]
    ) {
      frames.push(at);
    }
    return frames;
  }

  /**
   * The steps that use a value, and how many of its users are not scheduled.
   * @param {number} value
   */
  uses(value) {
    const steps = Array.from(
      this.column("use_step").subarray(this.useStarts[value], this.useStarts[value + 1]),
    );
    const scheduled = [...new Set(steps.filter(step => step > 0))].map(step => step - 1);
    return {
      steps: scheduled,
      unscheduled: steps.filter(step => step === 0).length,
      count: steps.length,
    };
  }

  /** Whether a profile says how long something of it takes. */
  get isTimed() {
    return this.column("value_time").some(text => text >= 0);
  }

  /** What a value is coloured by. @param {number} value @param {Colouring} by */
  key(value, by) {
    if (by === "op") return this.opPath(this.column("value_op")[value]) || "(no op)";
    if (by === "line") return this.textOf("value_line", value) || "(no line)";
    return this.textOf("value_" + by, value) || `(no ${by})`;
  }

  /** The blocks that live at a step, in the order of the rows. @param {number} step */
  blocksAt(step) {
    const found = [];
    for (let block = 0; block < this.blocks.start.length; block++) {
      if (this.lives(block, step)) found.push(block);
    }
    return found;
  }

  /**
   * What lives at a step, the largest first: bytes that are the same under several names are one.
   * @param {number} step
   * @returns {{buffer: number, block: number, bytes: number}[]} `block`: the largest of the
   *   buffer's there
   */
  buffersAt(step) {
    /** @type {Map<number, {buffer: number, block: number, bytes: number}>} */
    const found = new Map();
    const { value, size } = this.blocks;
    for (const block of this.blocksAt(step)) {
      const buffer = this.buffer(value[block]);
      const known = found.get(buffer);
      if (!known) found.set(buffer, { buffer, block, bytes: size[block] });
      else {
        known.bytes += size[block];
        if (size[block] > size[known.block]) known.block = block;
      }
    }
    return [...found.values()].sort((a, b) => b.bytes - a.bytes || a.buffer - b.buffer);
  }

  /**
   * What is held for the whole run: the kind of each value, such as "constant", what it is coloured
   * by, and its bytes. By category and time, no value shares the group of a temporary one.
   * @param {Colouring} by
   * @returns {[kind: string, key: string, bytes: number][]}
   */
  fixedParts(by) {
    const { value, size } = this.blocks;
    const isApart = by === "category" || by === "time";
    return Array.from(value.subarray(this.temps), (held, i) => [
      this.textOf("value_kind", held).replaceAll("_", " "),
      isApart ? "" : this.key(held, by),
      size[this.temps + i],
    ]);
  }
}
