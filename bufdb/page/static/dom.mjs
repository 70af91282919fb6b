// Elements of the page. Text goes in as text, never as markup, and always through `visible`.

import { lineAtEnd, visible } from "./text.mjs";

/** @typedef {string | number | Node | null} Content */

/** The element with this id, which the page has. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * An element with its content.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {{[name: string]: string}} attributes `class`, `title`, `aria-…`, `scope`
 * @param {...Content} content
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes, ...content) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, visible(value));
  }
  return fill(element, ...content);
}

/** An element whose content is replaced. @template {HTMLElement} E @param {E} element
 *  @param {...Content} content @returns {E} */
export function fill(element, ...content) {
  element.replaceChildren(
    ...content
      .filter(part => part !== null)
      .map(part => (part instanceof Node ? part : visible(String(part)))),
  );
  return element;
}

/**
 * A name of a dump, kept apart from the direction of what stands beside it. A file and its line at
 * its end stay together.
 * @param {string} name
 */
export function nameOf(name) {
  const line = lineAtEnd(name);
  if (!line) return make("bdi", {}, name);
  return make("bdi", {}, name.slice(0, -line.length), make("span", { class: "line" }, line));
}

/**
 * A button that does something.
 * @param {string} label
 * @param {() => void} act
 * @param {string} [hint]
 */
export function button(label, act, hint) {
  const element = make("button", { type: "button", ...(hint ? { title: hint } : {}) }, label);
  element.addEventListener("click", act);
  return element;
}

/** A swatch of a group's colour, or of the fixed bytes'. @param {number} group -1: fixed */
export function swatch(group) {
  const element = make("i", { class: "swatch" });
  element.style.background = `var(${group < 0 ? "--fixed" : "--g" + group})`;
  return element;
}

/**
 * A bar of parts of a whole, each with a class of its own.
 * @param {[string, number][]} parts class and share
 * @param {string} label what a screen reader says
 */
export function bar(parts, label) {
  const element = make("div", { class: "bar", role: "img", "aria-label": label, title: label });
  for (const [name, part] of parts) {
    const piece = make("span", { class: name });
    piece.style.width = 100 * Math.max(0, Math.min(1, part)) + "%";
    element.append(piece);
  }
  return element;
}
