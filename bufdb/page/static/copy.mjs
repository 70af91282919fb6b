// What can be taken away: text to the clipboard, and beside a table its CSV and its command.

import { button, make } from "./dom.mjs";

/** Text to the clipboard; a page that may not write there selects it in a field instead.
 *  @param {string} text @param {HTMLButtonElement} from tells what came of it */
export async function copy(text, from) {
  const label = from.textContent;
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = "copied";
  } catch {
    const field = make("textarea", { class: "copied", "aria-label": "copy this", readonly: "" });
    field.value = text;
    from.after(field);
    field.select();
    field.addEventListener("blur", () => field.remove());
    from.textContent = "copy what is selected";
  }
  setTimeout(() => {
    from.textContent = label;
  }, 2000);
}

/**
 * The buttons of a table.
 * @param {() => string} csv
 * @param {string | null} command that answers the same
 */
export function copyButtons(csv, command) {
  const rows = button(
    "copy CSV",
    () => {
      copy(csv(), rows);
    },
    "the rows as comma-separated values",
  );
  const box = make("span", { class: "copy" }, rows);
  if (command) {
    const ask = button("copy command", () => {
      copy(command, ask);
    });
    box.append(make("code", {}, command), ask);
  }
  return box;
}
