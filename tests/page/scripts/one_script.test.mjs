// The page holds the scripts as one, since a page opened from disk cannot import: what that asks of
// them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const folder = new URL("../../../bufdb/page/static/", import.meta.url);
const text = (/** @type {string} */ name) => readFileSync(new URL(name, folder), "utf8");
const order = text("order.txt")
  .split("\n")
  .filter(line => line && !line.startsWith("#"));
const scripts = order.filter(name => name.endsWith(".mjs"));

test("each script and style of the folder is in the order, once", () => {
  // The page of `bufdb fit --page` has no script, and its style alone.
  const others = ["frontier.css"];
  const files = readdirSync(folder).filter(
    name => /\.(mjs|js|css)$/.test(name) && !others.includes(name),
  );
  assert.deepEqual([...order].sort(), files.sort());
});

test("a script comes after those that it imports", () => {
  for (const [at, name] of scripts.entries()) {
    for (const [, from] of text(name).matchAll(/^import [^;]* from "\.\/([^"]*)";$/gm)) {
      assert.ok(scripts.indexOf(from) < at && scripts.includes(from), `${name} imports ${from}`);
    }
  }
});

test("no name is declared by two scripts", () => {
  // As a module, where a function declared twice is a fault too.
  const body = scripts
    .map(name =>
      text(name)
        .replace(/^import [^;]*;\n/gm, "")
        .replace(/^export /gm, ""),
    )
    .join("");
  const scratch = mkdtempSync(join(tmpdir(), "one-script-"));
  try {
    writeFileSync(join(scratch, "page.mjs"), body);
    execFileSync(process.execPath, ["--check", join(scratch, "page.mjs")], { stdio: "pipe" });
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

const skip =
  !existsSync(new URL("node_modules/uplot", import.meta.url)) &&
  "'npm ci' has not been run in tests/page/scripts";
test("the library is the released file of the pinned version", { skip }, () => {
  const released = (/** @type {string} */ name) =>
    readFileSync(new URL(`node_modules/uplot/${name}`, import.meta.url), "utf8");
  assert.equal(text("uplot.iife.min.js"), released("dist/uPlot.iife.min.js"));
  assert.equal(text("uplot.min.css"), released("dist/uPlot.min.css"));
  assert.equal(text("uplot.LICENSE"), released("LICENSE"));
});
