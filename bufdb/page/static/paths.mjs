// Paths of source lines as short as they stay apart: "saved train.py:53" for the only train.py.
// What is copied, linked and searched for keeps the whole path too.

/** A path with a line behind it, anywhere in a text. */
const PATH = /[^\s:]*\/[^/:\s]+(?=:\d)/g;

/** The last parts of a path. @param {string} path @param {number} count */
function lastParts(path, count) {
  return path.split("/").slice(-count).join("/");
}

/**
 * How to shorten texts that name source lines.
 * @param {Iterable<string>} paths all that may be named
 * @returns {(text: string) => string}
 */
export function shortener(paths) {
  /** @type {Map<string, string>} */
  const short = new Map();
  /** @type {Map<string, Set<string>>} */
  const alike = new Map();
  for (const path of paths) {
    const name = lastParts(path, 1);
    const known = alike.get(name);
    if (known) known.add(path);
    else alike.set(name, new Set([path]));
  }
  for (const group of alike.values()) {
    let parts = 1;
    const most = Math.max(...Array.from(group, path => path.split("/").length));
    while (
      parts < most &&
      new Set(Array.from(group, path => lastParts(path, parts))).size < group.size
    ) {
      parts++;
    }
    for (const path of group) short.set(path, lastParts(path, parts));
  }
  return text => text.replace(PATH, path => short.get(path) ?? path);
}

/** The paths that a text names. @param {string} text @returns {string[]} */
export function pathsIn(text) {
  return text.match(PATH) ?? [];
}
