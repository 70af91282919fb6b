// Keys: what each does. Not while somebody types, and never with Ctrl, Alt or Meta, which are the
// browser's.

/** @typedef {{[name: string]: () => void}} Acts */

/** The act that a key stands for. @type {{[key: string]: string}} */
export const KEYS = {
  ArrowLeft: "back",
  ArrowRight: "on",
  "Shift+ArrowLeft": "far back",
  "Shift+ArrowRight": "far on",
  "[": "last peak",
  "]": "next peak",
  p: "peak",
  "+": "closer",
  "=": "closer",
  "-": "wider",
  0: "all",
  "/": "find",
  c: "colour",
  Escape: "let go",
};

/**
 * The act of a key press, null for none.
 * @param {{key: string, shiftKey: boolean, ctrlKey: boolean,  metaKey: boolean, altKey: boolean}}
 *   event
 * @param {boolean} isTyping
 */
export function actOf({ key, shiftKey, ctrlKey, metaKey, altKey }, isTyping) {
  if (ctrlKey || metaKey || altKey || (isTyping && key !== "Escape")) return null;
  const name = shiftKey && key.startsWith("Arrow") ? "Shift+" + key : key;
  return Object.hasOwn(KEYS, name) ? KEYS[name] : null;
}

/** Listens for all keys. @param {Acts} acts by the names of `KEYS` */
export function listen(acts) {
  document.addEventListener("keydown", event => {
    const target = event.target instanceof Element ? event.target : document.body;
    const act = actOf(event, target.matches("input, select, textarea"));
    if (act === null) return;
    event.preventDefault();
    acts[act]();
  });
}
