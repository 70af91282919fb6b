// Starts the page: what the controls, the keys and the browser's events do.

/** @import {Colouring} from "./model.mjs" */
/** @import {TreeKind} from "./tree.mjs" */
import { byId, fill, make, nameOf } from "./dom.mjs";
import { listen } from "./keys.mjs";
import { Page, readSlot } from "./page.mjs";
import { counted } from "./text.mjs";

/** The opposite theme of the one that holds; the system's until somebody asks. */
function turnTheme() {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme
    ? dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
}

/** @param {Page} page */
function controls(page) {
  const find = /** @type {HTMLInputElement} */ (byId("find"));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  find.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => page.pictures.find(find.value), 120);
  });
  find.addEventListener("keydown", event => {
    if (event.key !== "Enter") return;
    clearTimeout(typing);
    if (page.pictures.scene?.find !== find.value) page.pictures.find(find.value);
    page.pictures.nextHit();
  });
  page.select.addEventListener("change", () => page.open(page.rows[Number(page.select.value)]));
  const by = /** @type {HTMLSelectElement} */ (byId("by"));
  by.addEventListener("change", () => page.pictures.colour(/** @type {Colouring} */ (by.value)));
  byId("theme").addEventListener("click", () => {
    turnTheme();
    page.restyle();
  });
  byId("closer").addEventListener("click", () => page.pictures.zoom(0.5));
  byId("wider").addEventListener("click", () => page.pictures.zoom(2));
  byId("whole").addEventListener("click", () => page.pictures.zoomTo(0, Infinity));
  for (const choice of document.querySelectorAll("input[name=tree]")) {
    choice.addEventListener("change", () =>
      page.pictures.tree(/** @type {TreeKind} */ (/** @type {HTMLInputElement} */ (choice).value)),
    );
  }
}

/** @param {Page} page */
function keys(page) {
  const step = (/** @type {number} */ by) => () =>
    page.pictures.choose((page.pictures.scene?.step ?? 0) + by);
  listen({
    back: step(-1),
    on: step(1),
    "far back": step(-10),
    "far on": step(10),
    "last peak": () => page.pictures.nextPeak(-1),
    "next peak": () => page.pictures.nextPeak(1),
    peak: () => page.pictures.choose(page.pictures.scene?.model.peakStep ?? 0),
    closer: () => page.pictures.zoom(0.5),
    wider: () => page.pictures.zoom(2),
    all: () => page.pictures.look(() => ({ t0: 0, t1: Infinity, y0: 0, y1: Infinity })),
    find: () => byId("find").focus(),
    colour: () => page.pictures.nextColour(),
    "let go": () => page.pictures.letGo(),
  });
}

/**
 * Printed on paper: light, every table open, sharp; on the screen as before afterwards.
 * @param {Page} page
 */
function printing(page) {
  /** @type {HTMLDetailsElement[]} */
  let opened = [];
  /** @type {string | undefined} */
  let theme;
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    opened = [...document.querySelectorAll("details")].filter(details => !details.open);
    for (const details of opened) {
      details.open = true;
      details.dispatchEvent(new Event("toggle"));
    }
    page.restyle();
  });
  addEventListener("afterprint", () => {
    if (theme === undefined) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const details of opened) details.open = false;
    page.restyle();
  });
}

/** @param {any} report */
function head(report) {
  const { run_count: runs, module_count: modules, function_count: functions } = report.counts;
  fill(
    byId("counts"),
    `${counted(runs, "run")}, ${counted(functions, "function")}, ${counted(modules, "module")}. `,
    make("code", {}, nameOf(report.command)),
    ` bufdb ${report.bufdb}`,
  );
  fill(
    byId("findings"),
    ...report.findings.map((/** @type {[string, string, number]} */ [severity, code, count]) =>
      make("li", {}, `${severity}: ${code} × ${count}`),
    ),
  );
  byId("processes-section").hidden = !report.processes.length && !report.courses.length;
  fill(
    byId("processes"),
    ...report.processes.flatMap((/** @type {string[]} */ [heading, ...lines]) => [
      make("h3", {}, nameOf(heading)),
      make("ul", {}, ...lines.map(line => make("li", {}, nameOf(line)))),
    ]),
  );
}

async function start() {
  const { head: report } = await readSlot(0);
  const page = new Page(report);
  head(report);
  page.courses.draw();
  if (!page.rows.length) {
    fill(byId("answer"), "Nothing to show: no module was chosen.");
    return;
  }
  controls(page);
  keys(page);
  printing(page);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    page.restyle();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.restyle());
  addEventListener("hashchange", () => page.follow());
  await page.follow();
  document.body.dataset.ready = "yes";
}

start().catch(fault => {
  fill(
    byId("answer"),
    "The data of this page cannot be read: ",
    nameOf(String(fault.message ?? fault)),
  );
  throw fault;
});
