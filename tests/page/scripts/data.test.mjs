// What data says: decode, text, groups, link.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { toCsv } from "../../../bufdb/page/static/csv.mjs";
import { decode, fromBase64, readVarints, unpack } from "../../../bufdb/page/static/decode.mjs";
import { bytesOver, fold, rank } from "../../../bufdb/page/static/groups.mjs";
import { fromHash, toHash } from "../../../bufdb/page/static/link.mjs";
import {
  apart,
  baseName,
  counted,
  cut,
  humanBytes,
  lineAtEnd,
  percent,
  signedBytes,
  visible,
} from "../../../bufdb/page/static/text.mjs";
import { Numbers, rectangles, varints } from "./numbers.mjs";

test("varints of any size and sign are read back, and 2^53 is the end", () => {
  const numbers = [
    0,
    -1,
    1,
    63,
    64,
    -64,
    -65,
    2 ** 31,
    -(2 ** 31),
    2 ** 40 + 1,
    2 ** 51,
    -(2 ** 51),
  ];
  const data = varints(numbers);
  assert.deepEqual(readVarints(data, 0, numbers.length, false), [
    Float64Array.from(numbers),
    data.length,
  ]);
  assert.throws(() => readVarints(varints([2 ** 53]), 0, 1, false), /2\^53/);
});

test("differences are summed up", () => {
  assert.deepEqual([...readVarints(varints([5, -2, 2 ** 40]), 0, 3, true)[0]], [5, 3, 2 ** 40 + 3]);
});

test("a column that ends too early is reported, not filled with zeros", () => {
  assert.throws(() => readVarints(varints([1]), 0, 2, false), /ends within a column/);
  assert.throws(() => readVarints(Uint8Array.of(0x80), 0, 1, false), /ends within a column/);
});

/** @param {object} head @param {number[][]} columns */
function slot(head, columns) {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, text.length, true);
  return Buffer.concat([length, text, ...columns.map(varints)]);
}

test("a slot is its head and its columns, by base64 and gzip", async () => {
  const data = slot(
    {
      text: ["a"],
      columns: [
        ["start", 3, 1],
        ["size", 2, 0],
      ],
    },
    [
      [1, 1, 1],
      [7, 2 ** 40],
    ],
  );
  const { head, columns } = decode(await unpack(gzipSync(data).toString("base64")));
  assert.deepEqual(head.text, ["a"]);
  assert.deepEqual(columns.start, Float64Array.of(1, 2, 3));
  assert.deepEqual(columns.size, Float64Array.of(7, 2 ** 40));
});

test("bytes after the last column are a fault of the data", () => {
  const data = Uint8Array.from(slot({ columns: [] }, [[1]]));
  assert.throws(() => decode(data), /longer/);
});

test("a column named __proto__ is a column", () => {
  const { columns } = decode(
    Uint8Array.from(slot(JSON.parse('{"columns": [["__proto__", 1, 0]]}'), [[9]])),
  );
  assert.deepEqual(Object.keys(columns), ["__proto__"]);
});

test("base64 is read, and what is none is refused", () => {
  assert.deepEqual([...fromBase64("AAEC/w==")], [0, 1, 2, 255]);
  assert.throws(() => fromBase64("*"));
});

test("bytes read as bufdb's answers write them", () => {
  const sizes = {
    0: "0 B",
    1023: "1023 B",
    1024: "1.00 KiB",
    1152: "1.12 KiB",
    10239: "10.0 KiB",
    1048575: "1.00 MiB",
    819200: "800 KiB",
  };
  for (const [count, text] of Object.entries(sizes)) assert.equal(humanBytes(Number(count)), text);
  assert.equal(humanBytes(2 ** 70), "1024 EiB");
  assert.deepEqual(
    [signedBytes(2048), signedBytes(-2048), signedBytes(0)],
    ["+2.00 KiB", "−2.00 KiB", "±0 B"],
  );
  assert.deepEqual(apart([2 ** 30, 2 ** 30 - 2 ** 20]), ["1.00 GiB", "1023 MiB"]);
  assert.deepEqual(apart([2 ** 30, 2 ** 30 + 1]), ["1073741824 B", "1073741825 B"]);
  assert.equal(percent(1, 8), "12.5 %");
  assert.equal(percent(85596.7, 1), "×85,600");
});

test("what a name may not do to the page is shown as its code", () => {
  assert.equal(visible("a\u202eb\n\u0000\u2066"), "a\\u202eb\\u000a\\u0000\\u2066");
  assert.equal(visible("</script><b>é漢"), "</script><b>é漢");
});

test("small texts", () => {
  assert.deepEqual([percent(1, 8), percent(1, 0)], ["12.5 %", ""]);
  assert.deepEqual([baseName("/a/b/train.py"), baseName("x")], ["train.py", "x"]);
  assert.deepEqual([cut("abcdef", 4), cut("abcd", 4), cut("abc", 1)], ["abc…", "abcd", ""]);
  assert.deepEqual([counted(1, "value"), counted(12345, "value")], ["1 value", "12,345 values"]);
});

test("the seven with most bytes at the peak have a color, the rest share one", () => {
  const keys = [..."abcdefghij"];
  const size = [1, 2, 3, 4, 5, 6, 7, 8, 9, 100];
  const groups = rank(keys, size, block => block !== 9);
  assert.deepEqual(groups.names, ["i", "h", "g", "f", "e", "d", "c", "other (3)"]);
  assert.deepEqual([...groups.of], [7, 7, 6, 5, 4, 3, 2, 1, 0, 7]);
});

test("an eighth key alone keeps its name, and ties are broken by name", () => {
  assert.deepEqual(rank([..."hgfedcba"], new Array(8).fill(1), () => true).names, [..."abcdefgh"]);
  assert.deepEqual(rank([], [], () => true).names, []);
  assert.deepEqual(rank(["__proto__", "constructor"], [2, 1], () => true).names, [
    "__proto__",
    "constructor",
  ]);
});

test("numbers in scopes are folded", () => {
  assert.equal(fold("jit(f)/layer_12/dot_3"), "jit(f)/layer_*/dot_*");
});

test("the groups together are what lives, at every step", () => {
  const numbers = new Numbers(2);
  const rows = Array.from({ length: 300 }, () => {
    const start = numbers.below(50);
    return [start, Math.min(49, start + numbers.below(20)), 0, 1 + numbers.below(1000)];
  });
  const blocks = rectangles(rows);
  const keys = rows.map(row => "k" + (row[3] % 12));
  const over = bytesOver(
    rank(keys, blocks.size, block => rows[block][0] < 9),
    blocks,
    50,
  );
  assert.equal(over.length, 8);
  for (let step = 0; step < 50; step++) {
    const live = rows.reduce(
      (sum, [start, end, , size]) => sum + (start <= step && step <= end ? size : 0),
      0,
    );
    assert.equal(
      over.reduce((sum, group) => sum + group[step], 0),
      live,
    );
  }
});

test("a link leads back to where it was made", () => {
  const link = {
    module: "a b/k&ü=#/device",
    step: 85,
    by: "line",
    find: "x&step=3 +",
    block: "fusion.3{0}",
  };
  assert.deepEqual(fromHash(toHash(link), ["category", "line"]), link);
});

test("a link that says nothing, or nonsense, leads to the peak in the first coloring", () => {
  const none = { module: "", step: null, by: "category", find: "", block: "" };
  for (const hash of ["", "#", "#step=-1&by=__proto__", "#step=1e9", "#step=" + "9".repeat(30)]) {
    assert.deepEqual(fromHash(hash, ["category", "line"]), none);
  }
});

test("a file and its line stay together", () => {
  assert.equal(lineAtEnd("saved /m/unet.py:17"), "unet.py:17");
  assert.equal(lineAtEnd("unet.py:17"), "unet.py:17");
  assert.equal(lineAtEnd("jit(f)/mul"), "");
});

test("halves are rounded as Python rounds them, to the even one", () => {
  assert.equal(humanBytes(63.25 * 1024), "63.2 KiB");
  assert.equal(humanBytes(63.75 * 1024), "63.8 KiB");
  assert.equal(humanBytes(1.125 * 1024), "1.12 KiB");
  assert.equal(humanBytes(1024 * 1024 - 1), "1.00 MiB");
});

test("CSV is that of bufdb: NULL is nothing, quotes where they must be", () => {
  const columns = /** @type {[string, string][]} */ ([
    ["name", "VARCHAR"],
    ["held_bytes", "HUGEINT"],
    ["held_ratio", "DOUBLE"],
    ["is_exact", "BOOLEAN"],
  ]);
  const rows = [
    ['a "b", c', 12, 1, true],
    ["", null, 0.0000125, null],
    ["x\ny", 0, 0.25, false],
  ];
  const lines = ['"a ""b"", c",12,1.0,true', '"",,1.25e-05,', '"x\ny",0,0.25,false'];
  assert.equal(
    toCsv(columns, rows),
    ["name,held_bytes,held_ratio,is_exact", ...lines, ""].join("\n"),
  );
});
