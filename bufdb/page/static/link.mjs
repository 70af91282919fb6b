// The page's place as a link: #module=run/key/space&step=85&by=line&find=…, by names, so that it
// holds in tomorrow's report of the same runs.

/** @typedef {{module: string, step: number | null, by: string, find: string, block: string}} Link
 *  step null: the peak; block: name of the chosen one, empty for none */

/**
 * @param {string} hash with or without its #
 * @param {readonly string[]} known colourings, the first is the default
 * @returns {Link}
 */
export function fromHash(hash, known) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const step = asked.get("step");
  const by = asked.get("by") ?? "";
  return {
    module: asked.get("module") ?? "",
    step: step !== null && /^\d{1,15}$/.test(step) ? Number(step) : null,
    by: known.includes(by) ? by : known[0],
    find: asked.get("find") ?? "",
    block: asked.get("block") ?? "",
  };
}

/** @param {Link} link */
export function toHash({ module, step, by, find, block }) {
  const parts = new URLSearchParams({ module });
  if (step !== null) parts.set("step", String(step));
  parts.set("by", by);
  if (find) parts.set("find", find);
  if (block) parts.set("block", block);
  return "#" + parts;
}
