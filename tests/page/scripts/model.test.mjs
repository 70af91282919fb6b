// What a slot's columns say: model, find, tree, words, groups of a scene; and what reads them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { needle, search, tally } from "../../../bufdb/page/static/find.mjs";
import { layOut } from "../../../bufdb/page/static/icicle.mjs";
import { actOf } from "../../../bufdb/page/static/keys.mjs";
import {
  linkName,
  Model,
  moduleRows,
  partsOf,
  shownName,
} from "../../../bufdb/page/static/model.mjs";
import { filtered, firstRows, sorted } from "../../../bufdb/page/static/modules.mjs";
import { pathsIn, shortener } from "../../../bufdb/page/static/paths.mjs";
import { cellText } from "../../../bufdb/page/static/saved.mjs";
import { grouped, peakParts } from "../../../bufdb/page/static/scene.mjs";
import { repeated, roundCounts } from "../../../bufdb/page/static/rounds.mjs";
import { TreeShape } from "../../../bufdb/page/static/tree.mjs";
import {
  needWords,
  originWords,
  peakWords,
  savingWords,
} from "../../../bufdb/page/static/words.mjs";

const TEXT = [
  "dot",
  "temp",
  "f32[4]",
  "f32",
  "/m/train.py:5",
  "forward",
  "jit(f)",
  "layer_1",
  "mul",
];
const [DOT, TEMP, SHAPE, F32, LINE, FORWARD, JIT, LAYER, MUL] = TEXT.keys();
const MORE = ["/m/train.py", "main", "step", "/lib/jax.py", "apply", "parameter", "(parameter)"];
const [FILE, MAIN, STEP, LIBRARY, APPLY, PARAMETER, HELD] = MORE.map((_, i) => TEXT.length + i);
const LAST = ["source_line", "value", "stacked", "saved /m/train.py:7", "while.1", "/m/train.py:9"];
const [SOURCE, VALUE, STACKED, SAVED, WHILE, LOOP] = LAST.map((_, i) => 16 + i);
const NONE = -1;

/**
 * Steps 0 to 9. dot.3 (values 0, and 1 as another name) at 0 to 5, one buffer in two blocks; dot
 * (value 2) at 4 to 9; and a parameter that is held throughout.
 */
const COLUMNS = {
  value_id: [10, 11, 12, 1],
  value_kind: [TEMP, TEMP, TEMP, PARAMETER],
  value_stem: [DOT, DOT, MUL, PARAMETER],
  value_number: [4, 0, 0, 0],
  value_index: [NONE, NONE, NONE, NONE],
  value_start: [0, 3, 4, 0],
  value_last: [2, 2, 5, 9],
  value_size: [100, 100, 40, 7],
  value_padding: [5, 5, 1, 0],
  value_shape: [SHAPE, SHAPE, SHAPE, SHAPE],
  value_dtype: [F32, F32, F32, F32],
  value_opcode: [DOT, DOT, MUL, PARAMETER],
  value_scope: [2, 2, 1, NONE],
  value_op: [2, 2, 1, NONE],
  value_line: [LINE, LINE, SAVED, HELD],
  value_category: [FORWARD, FORWARD, NONE, NONE],
  value_time: [NONE, NONE, NONE, NONE],
  value_frame: [2, 2, 1, NONE],
  value_buffer: [0, 1, 0, 0],
  value_uses: [2, 0, 1, 0],
  block_value: [0, 1, 2, 3],
  block_start: [0, 3, 4, 0],
  block_last: [2, 2, 5, 9],
  block_offset: [0, 0, 100, -1],
  block_size: [100, 100, 40, 7],
  op_parent: [-1, 0, 1],
  op_text: [JIT, LAYER, MUL],
  frame_parent: [-1, 0, 1],
  frame_file: [FILE, LIBRARY, FILE],
  frame_function: [MAIN, APPLY, STEP],
  frame_line: [2, 3, 5],
  frame_own: [1, 0, 1],
  use_step: [0, 5, 7],
  step_stem: [NONE, DOT, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
  step_number: [0, 4, 0, 0, 0, 0, 0, 0, 0, 0],
  origin_value: [2],
  origin_kind: [STACKED],
  origin_line: [SAVED],
  origin_loop: [WHILE],
  origin_loop_line: [LOOP],
  origin_slice_shape: [SHAPE],
  origin_slice_bytes: [11],
  origin_slice_count: [5],
  origin_trip_count: [5],
  origin_flags: [1],
  peak_time: [4, 9],
  peak_bytes: [147, 47],
  peak_valley: [0, 48],
  saving_what: [SOURCE, VALUE],
  saving_name: [LINE, NONE],
  saving_value: [NONE, 1],
  saving_held: [100, 100],
  saving_bytes: [60, 100],
  saving_time: [9, 4],
  saving_low: [0, 0],
  saving_form: [NONE, NONE],
  saving_kept: [NONE, NONE],
};

const ROW = {
  run: "r",
  function: "f",
  module_key: "k",
  space: "hbm",
  platform: "gpu",
  peak_bytes: 147,
  peak_time: 4,
  length: 9,
  limit_bytes: null,
};

function model() {
  const columns = Object.entries(COLUMNS).map(([name, row]) => [name, Float64Array.from(row)]);
  const head = {
    text: [...TEXT, ...MORE, ...LAST],
    arena: [[0, 0, 140]],
    arena_bytes: 140,
    command: "bufdb query QUERY --run r",
  };
  return new Model(ROW, head, Object.fromEntries(columns));
}

test("sums of the blocks are the bytes of each step, what is fixed among them", () => {
  const of = model();
  assert.deepEqual([...of.totals], [107, 107, 107, 107, 147, 147, 47, 47, 47, 47]);
  assert.deepEqual([...of.fixed], new Array(10).fill(7));
  assert.deepEqual(of.fixedParts("line"), [["parameter", "(parameter)", 7]]);
  assert.deepEqual(of.fixedParts("category"), [["parameter", "", 7]]);
  assert.equal(of.hasPeak, true);
});

test("names, paths, lives and uses of a value", () => {
  const of = model();
  assert.deepEqual(
    [of.name(0), of.name(1), of.instruction(1), of.instruction(0)],
    ["dot.3", "dot", "dot.3", ""],
  );
  assert.equal(of.opPath(2), "jit(f)/layer_1/mul");
  assert.equal(of.opPath(-1), "");
  assert.deepEqual(of.live(2), [4, 9]);
  assert.deepEqual(of.uses(0), { steps: [4], unscheduled: 1, count: 2 });
  assert.deepEqual(of.uses(2), { steps: [6], unscheduled: 0, count: 1 });
  assert.deepEqual(
    of.stack(0).map(frame => of.frame(frame).place),
    ["train.py:5", "jax.py:3", "train.py:2"],
  );
});

test("the same bytes under two names are one buffer, one row and one box", () => {
  const of = model();
  assert.deepEqual([of.buffer(1), of.aliases(0)], [0, [0, 1]]);
  assert.deepEqual(of.bufferLife(0), [0, 5]);
  assert.deepEqual([...of.held.goesOn], [0, 1, 0, 0]);
  assert.deepEqual(of.boxesOf(0), [[0, 5, 0, 100]]);
  assert.deepEqual(of.boxesOf(-1), []);
  assert.deepEqual(
    of.buffersAt(4).map(({ buffer, bytes }) => [buffer, bytes]),
    [
      [0, 100],
      [2, 40],
      [3, 7],
    ],
  );
  assert.deepEqual(of.valueSavings.get(0), { held: 100, saves: 100, step: 4, low: null, kept: "" });
});

test("a command asks for the instant that is shown", () => {
  assert.equal(model().queryCommand("peak", 4), "bufdb query peak --run r");
  assert.equal(model().queryCommand("peak", 5), "bufdb query peak --run r -p step=5");
});

test("find looks into names, shapes, whole op paths, lines and functions", () => {
  const of = model();
  const found = (/** @type {string} */ text) => {
    const hits = search(of, needle(text));
    return hits && [...hits.values].flatMap((hit, value) => (hit ? [value] : []));
  };
  assert.equal(found("  "), null);
  assert.deepEqual(found("DOT.3"), [0]);
  assert.deepEqual(found("f32[4"), [0, 1, 2, 3]);
  assert.deepEqual(found("layer_1"), [0, 1, 2]);
  assert.deepEqual(found("layer_1/mul"), [0, 1]);
  assert.deepEqual(found("train.py:5"), [0, 1]);
  assert.deepEqual(found("saved train.py:7"), [2], "as it is shown");
  assert.deepEqual(found("saved /m/train.py:7"), [2], "as it is");
  assert.deepEqual(found("apply"), [2], "the function of the innermost frame");
  assert.deepEqual(found("[f32"), []);
  const hits = search(of, "dot");
  assert.ok(hits);
  assert.deepEqual(tally(of, hits, 4), { count: 2, bytes: 100 });
});

test("trees hold every byte of the step once, whatever they group by", () => {
  const of = model();
  for (const kind of /** @type {const} */ (["stack", "library", "op"])) {
    const shape = new TreeShape(of, kind);
    for (let step = 0; step < of.steps; step++) {
      assert.equal(layOut(shape.parent, shape.bytesAt(step)).bytes, of.totals[step]);
    }
  }
});

test("frames of libraries are left out, and their bytes are their callers'", () => {
  const of = model();
  const own = new TreeShape(of, "stack");
  assert.deepEqual(own.label, ["main  train.py:2", "step  train.py:5", "parameter", "(no line)"]);
  assert.deepEqual(own.parent, [-1, 0, -1, -1]);
  assert.deepEqual([...own.bytesAt(4)], [40, 100, 7, 0]);
  const all = new TreeShape(of, "library");
  assert.deepEqual(all.label.slice(0, 3), [
    "main  train.py:2",
    "apply  jax.py:3",
    "step  train.py:5",
  ]);
  assert.equal(own.isHit(1, search(of, "step")), true);
  assert.equal(own.isHit(0, search(of, "step")), false);
});

test("rounds of the same frames are counted once, by the outermost", () => {
  const rounds = (/** @type {string} */ stack) =>
    roundCounts([...stack]).flatMap((count, i) => (count ? stack[i] + count : []));
  assert.deepEqual(rounds("xcbacbacbam"), ["x1", "c3", "b3", "a3", "m1"]);
  assert.deepEqual(rounds("bacbacbam"), ["b1", "a1", "c2", "b2", "a2", "m1"]);
  assert.deepEqual(rounds("fffm"), ["f3", "m1"]);
  assert.deepEqual(rounds("ghgm"), ["g1", "h1", "g1", "m1"]);
  assert.deepEqual(rounds("xgffgffm"), ["x1", "g2", "f4", "m1"]);
  const tree = [..."mabca"];
  const parent = [-1, 0, 1, 2, 3];
  assert.equal(repeated(tree, parent, 3, "c"), 3);
  assert.equal(repeated(tree, parent, 3, "a"), -1);
  assert.equal(repeated([...tree, "b"], [...parent, 4], 5, "c"), 3);
});

test("a coloring stacks its groups upon what is fixed, up to the total", () => {
  const of = model();
  for (const by of /** @type {const} */ (["line", "category", "op", "dtype", "time"])) {
    const { groups, stack } = grouped(of, by);
    assert.deepEqual(stack.at(-1), of.totals);
    assert.equal(groups.of.length, of.temps);
  }
  assert.deepEqual(grouped(of, "op").groups.names, ["jit(f)/layer_*/mul", "jit(f)/layer_*"]);
  assert.deepEqual(grouped(of, "category").groups.names, ["forward", "(no category)"]);
  assert.deepEqual(grouped(of, "time").groups.names, ["(no time)"]);
});

test("what a line holds for the whole run is in its part of the peak", () => {
  const of = model();
  const parts = () => peakParts({ ...grouped(of, "line"), model: of });
  assert.deepEqual(parts(), [
    ["parameter", 7, -1],
    ["train.py:5", 100, 0],
    ["saved train.py:7", 40, 1],
  ]);
  of.column("value_line")[3] = LINE;
  assert.deepEqual(parts(), [
    ["train.py:5", 107, 0],
    ["saved train.py:7", 40, 1],
  ]);
});

test("savings and origins in words", () => {
  const words = (/** @type {number} */ saves, /** @type {number} */ step, more = {}) => {
    const saving = { held: 2048, saves, step, low: null, kept: "", ...more };
    const { text, step: link, rest } = savingWords(saving, 4);
    return text + (link === null ? "" : `step ${link}`) + rest;
  };
  assert.equal(words(2048, 9), "saves 2.00 KiB");
  assert.equal(words(1024, 9), "saves 1.00 KiB; the peak would then be at step 9");
  assert.equal(words(0, 9), "saves nothing: step 9 is as high");
  assert.equal(words(2048, 9, { low: 1024 }), "saves 1.00 KiB to 2.00 KiB");
  assert.equal(words(2048, 9, { low: 2048 }), "saves 2.00 KiB");
  const kept = { low: -8, kept: "a.py:1" };
  assert.equal(words(2048, 4, kept), "saves nothing to 2.00 KiB (keeps a.py:1)");
  assert.equal(
    originWords(model(), 2),
    "residual of saved train.py:7, 4 × 10 B f32[4], by the loop of train.py:9, 4 trips",
  );
  assert.equal(originWords(model(), 0), "");
});

test("a module without columns has nothing to draw and nothing that fails", () => {
  const of = new Model({ ...ROW, peak_bytes: null, peak_time: null, length: 0 }, {}, {});
  assert.deepEqual([of.hasPeak, of.steps, of.peakStep, of.buffersAt(0)], [false, 1, 0, []]);
});

test("paths are as short as they stay apart", () => {
  const short = shortener(["/a/x/train.py", "/a/y/train.py", "/a/model.py", "lib/util.py"]);
  assert.equal(short("saved /a/x/train.py:53"), "saved x/train.py:53");
  assert.equal(short("/a/model.py:3 and lib/util.py:4"), "model.py:3 and util.py:4");
  assert.equal(short("jit(f)/jvp/dot"), "jit(f)/jvp/dot", "no line, no path");
  assert.equal(short("/other/train.py:1"), "/other/train.py:1");
  assert.deepEqual(pathsIn("for /a/b.py:1"), ["/a/b.py"]);
});

test("rows of modules are sorted by need with the unknown last, and filtered by any name", () => {
  const table = {
    columns: ["run", "function", "module_key", "platform", "space", "peak_bytes", "need_bytes"],
    rows: [
      ["a", "f", "k1", "cpu", "host", 5, 8],
      ["b", "g", "k2", null, "hbm", null, null],
      ["c", "h", "k3", "tpu", "hbm", 9, null],
      ["d", "i", "k4", "gpu", "device", 6, 7],
      ["e", "j", "k5", "gpu", "device", null, 10],
    ],
  };
  const rows = moduleRows(table);
  const runs = (/** @type {any[]} */ of) => of.map(row => row.run).join("");
  assert.equal(runs(sorted(rows, 4, false)), "ecadb");
  assert.equal(runs(sorted(rows, 4, true)), "daceb");
  assert.equal(runs(filtered(rows, " HBM")), "bc");
  assert.deepEqual([linkName(rows[0]), shownName(rows[0])], ["a/k1/host", "a › f · host"]);
  assert.deepEqual(rows.map(needWords), ["8 B", "need unknown", "at least 9 B", "7 B", "10 B"]);
  assert.deepEqual(rows.map(peakWords), ["5 B", "peak unknown", "9 B", "6 B", "peak unknown"]);
});

test("a training step is among the first rows, in its place", () => {
  const rows = Array.from({ length: 12 }, (_, i) => ({ run: `${i}`, step: i === 10 ? "s" : null }));
  assert.deepEqual(
    firstRows(rows).map(row => row.run),
    ["0", "1", "2", "3", "4", "5", "6", "7", "10"],
  );
});

test("bytes that an output has of an argument are counted once", () => {
  const row = {
    argument_bytes: 10,
    output_bytes: 12,
    alias_bytes: 10,
    constant_bytes: 1,
    temp_bytes: 5,
  };
  assert.deepEqual(
    partsOf(row).map(([, bytes]) => bytes),
    [10, 2, 1, 5],
  );
});

test("cells of answers in words: units by the column's name, NULL as nothing", () => {
  assert.equal(cellText("held_bytes", 2048), "2.00 KiB");
  assert.equal(cellText("held_bytes", "36893488147419103232"), "32.0 EiB");
  assert.equal(cellText("held_ratio", 0.125), "12.5 %");
  assert.equal(cellText("saving_bytes_per_ms", 2048.4), "2.00 KiB");
  assert.deepEqual(
    [7, 999_999, 38_700_000, 2e9].map(ns => cellText("run_ns", ns)),
    ["7 ns", "1.00 ms", "38.7 ms", "2.00 s"],
  );
  assert.deepEqual(
    [cellText("is_exact", true), cellText("shape", null), cellText("n", 0)],
    ["yes", "", "0"],
  );
});

test("keys are the page's unless the user types or holds Ctrl", () => {
  const key = (/** @type {string} */ name, more = {}) => ({
    key: name,
    shiftKey: false,
    ctrlKey: false,
    metaKey: false,
    altKey: false,
    ...more,
  });
  assert.equal(actOf(key("ArrowLeft"), false), "back");
  assert.equal(actOf(key("ArrowLeft", { shiftKey: true }), false), "far back");
  assert.equal(actOf(key("p", { ctrlKey: true }), false), null);
  assert.equal(actOf(key("p"), true), null);
  assert.equal(actOf(key("Escape"), true), "let go");
  assert.equal(actOf(key("toString"), false), null);
});
