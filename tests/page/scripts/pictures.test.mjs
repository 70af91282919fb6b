// Where things lie: view, sample, paint, icicle.
import assert from "node:assert/strict";
import { test } from "node:test";

import { layOut } from "../../../bufdb/page/static/icicle.mjs";
import { bySize, paint, placeOf } from "../../../bufdb/page/static/paint.mjs";
import { highest, instants } from "../../../bufdb/page/static/sample.mjs";
import {
  clamp,
  pan,
  show,
  whole,
  zoomOffsets,
  zoomSteps,
} from "../../../bufdb/page/static/view.mjs";
import { Numbers, rectangles } from "./numbers.mjs";

const bounds = { steps: 100, arena: 1e6 };

test("the whole view is all steps and all bytes", () => {
  assert.deepEqual(whole(bounds), { t0: 0, t1: 100, y0: 0, y1: 1e6 });
  assert.deepEqual(whole({ steps: 5, arena: 0 }), { t0: 0, t1: 5, y0: 0, y1: 1 });
});

test("zooming keeps the step under the pointer where it is", () => {
  const view = zoomSteps(whole(bounds), bounds, 25, 0.5);
  assert.deepEqual([view.t0, view.t1], [12.5, 62.5]);
  assert.equal((25 - view.t0) / (view.t1 - view.t0), 0.25);
  const high = zoomOffsets(whole(bounds), bounds, 0, 0.1);
  assert.deepEqual([high.y0, high.y1], [0, 1e5]);
});

test("no view leaves what there is, whatever is asked", () => {
  const numbers = new Numbers(7);
  let view = whole(bounds);
  for (let i = 0; i < 2000; i++) {
    const step = numbers.below(140) - 20;
    const factor = 2 ** (numbers.below(9) - 4);
    view = [
      () => zoomSteps(view, bounds, step, factor),
      () => zoomOffsets(view, bounds, step * 1e4, factor),
      () => pan(view, bounds, step, step * 1e4),
      () => show(view, bounds, Math.min(99, Math.max(0, step))),
    ][i % 4]();
    assert.ok(0 <= view.t0 && view.t1 <= 100 && view.t1 - view.t0 >= 7.99, JSON.stringify(view));
    assert.ok(0 <= view.y0 && view.y1 <= 1e6 && view.y1 - view.y0 >= 4095.9, JSON.stringify(view));
  }
});

test("fewer steps than a zoom may show are shown whole", () => {
  assert.deepEqual(clamp({ t0: 1, t1: 2, y0: 0, y1: 1 }, { steps: 3, arena: 10 }), {
    t0: 0,
    t1: 3,
    y0: 0,
    y1: 10,
  });
});

test("a chosen step comes into view by the shortest way", () => {
  const view = { t0: 40, t1: 50, y0: 0, y1: 10 };
  assert.equal(show(view, bounds, 45), view);
  assert.equal(show(view, bounds, 50).t1, 51);
  assert.equal(show(view, bounds, 12).t0, 12);
});

test("each pixel shows its highest instant, so that no peak is lost", () => {
  const totals = [1, 9, 2, 2, 2, 2, 7, 1];
  assert.deepEqual([...instants(totals, 0, 8, 2).steps], [1, 6]);
  assert.deepEqual([...instants(totals, 0, 8, 2).edges], [0, 4]);
  assert.deepEqual([...instants(totals, 2, 4, 4).steps], [2, 2, 3, 3]);
  assert.equal(highest([3, 3], 0, 1), 0);
  const numbers = new Numbers(3);
  const many = Float64Array.from({ length: 997 }, () => numbers.below(1e6));
  for (const width of [1, 13, 400, 997, 3000]) {
    const drawn = instants(many, 0, many.length, width).steps;
    assert.equal(Math.max(...drawn.map(step => many[step])), Math.max(...many));
  }
});

test("a block lies at its steps and offsets, at least a pixel each way", () => {
  const blocks = rectangles([
    [0, 9, 0, 50],
    [10, 19, 50, 50],
    [5, 5, 99, 1],
  ]);
  const view = { t0: 0, t1: 20, y0: 0, y1: 100 };
  assert.deepEqual(placeOf(blocks, 0, view, 200, 100), [0, 0, 50, 100, 100]);
  assert.deepEqual(placeOf(blocks, 1, view, 200, 100), [1, 100, 0, 200, 50]);
  assert.deepEqual(placeOf(blocks, 2, view, 4, 4), [2, 1, 0, 2, 1]);
  assert.equal(placeOf(blocks, 1, { ...view, t1: 10 }, 200, 100), null);
  assert.equal(placeOf(blocks, 0, { ...view, y0: 50 }, 200, 100), null);
});

test("what a pixel shows is the block that lies there, at any zoom", () => {
  // Blocks side by side in eight rows, as an allocator would put them: none overlap.
  const numbers = new Numbers(11);
  /** @type {number[][]} */ const rows = [];
  for (let row = 0; row < 8; row++) {
    for (let step = 0; step < 400;) {
      const last = step + numbers.below(9);
      rows.push([step, last, row * 512, 512]);
      step = last + 1 + numbers.below(3);
    }
  }
  const blocks = rectangles(rows);
  const order = bySize(blocks);
  const width = 160;
  const height = 64;
  const raster = {
    width,
    height,
    pixels: new Uint32Array(width * height),
    blocks: new Int32Array(width * height),
  };
  for (const [t0, span] of [
    [0, 40],
    [17, 20],
    [330, 80],
  ]) {
    const view = { t0, t1: t0 + span, y0: 0, y1: 4096 };
    paint(raster, blocks, order, view, block => [block + 1, block + 1, block + 1], 0);
    for (let y = 0; y < height; y += 5) {
      for (let x = 0; x < width; x++) {
        const step = t0 + ((x + 0.5) * span) / width;
        const offset = ((height - y - 0.5) * 4096) / height;
        const there = rows.findIndex(
          ([first, last, low, size]) =>
            first <= step && step < last + 1 && low <= offset && offset < low + size,
        );
        assert.equal(raster.blocks[y * width + x], there);
        assert.equal(raster.pixels[y * width + x], there + 1);
      }
    }
  }
});

test("small blocks are painted first, and dust is seen where nothing covers it", () => {
  const blocks = rectangles([
    [0, 99, 0, 1000],
    [50, 50, 1000, 1],
  ]);
  const order = bySize(blocks);
  assert.deepEqual([...order], [1, 0]);
  const raster = {
    width: 10,
    height: 10,
    pixels: new Uint32Array(100),
    blocks: new Int32Array(100),
  };
  paint(raster, blocks, order, { t0: 0, t1: 100, y0: 0, y1: 1e5 }, () => [5, 6, 6], 0);
  assert.ok(raster.blocks.includes(0));
  assert.ok(!raster.blocks.includes(1), "the pixel they share shows the larger");
});

test("blocks large enough for a label are listed", () => {
  const blocks = rectangles([
    [0, 9, 0, 100],
    [0, 0, 100, 100],
  ]);
  const raster = {
    width: 200,
    height: 40,
    pixels: new Uint32Array(8000),
    blocks: new Int32Array(8000),
  };
  const labels = paint(
    raster,
    blocks,
    bySize(blocks),
    { t0: 0, t1: 10, y0: 0, y1: 200 },
    () => [1, 1, 1],
    0,
  );
  assert.deepEqual(labels, [[0, 0, 20, 200, 40]]);
});

test("a child lies under its parent, siblings by bytes, and the roots add up to the whole", () => {
  //        0: 3 = 1 own + child 2      1: 5          2: 2, below 0
  const icicle = layOut([-1, -1, 0], [1, 5, 2]);
  assert.deepEqual([...icicle.total], [3, 5, 2]);
  assert.deepEqual([...icicle.left], [5, 0, 5]);
  assert.deepEqual([...icicle.depth], [0, 0, 1]);
  assert.deepEqual([icicle.nodes, icicle.bytes, icicle.levels], [[1, 0, 2], 8, 2]);
});

test("of any tree, children lie within their parents and next to each other", () => {
  const numbers = new Numbers(5);
  const count = 3000;
  const parent = Array.from({ length: count }, (_, node) => numbers.below(node + 1) - 1);
  const own = parent.map(() => numbers.below(4) * 100);
  const icicle = layOut(parent, own);
  assert.equal(
    icicle.bytes,
    own.reduce((sum, bytes) => sum + bytes, 0),
  );
  for (const node of icicle.nodes) {
    const above = parent[node];
    if (above < 0) continue;
    assert.ok(icicle.left[above] <= icicle.left[node]);
    assert.ok(icicle.left[node] + icicle.total[node] <= icicle.left[above] + icicle.total[above]);
    assert.equal(icicle.depth[node], icicle.depth[above] + 1);
  }
  for (let level = 0; level < icicle.levels; level++) {
    const row = icicle.nodes
      .filter(node => icicle.depth[node] === level)
      .sort((a, b) => icicle.left[a] - icicle.left[b]);
    row
      .slice(1)
      .forEach((node, i) =>
        assert.ok(icicle.left[row[i]] + icicle.total[row[i]] <= icicle.left[node]),
      );
  }
});

test("a stack of any depth is laid out, and an empty tree has no rows", () => {
  const deep = 100_000;
  const icicle = layOut(
    Array.from({ length: deep }, (_, i) => i - 1),
    new Float64Array(deep).fill(1),
  );
  assert.equal(icicle.levels, deep);
  assert.deepEqual(layOut([], []).levels, 0);
  assert.deepEqual(layOut([-1], [0]).nodes, []);
});
