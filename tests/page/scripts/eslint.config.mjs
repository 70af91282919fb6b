// Forbidden in the page's scripts, besides what is wrong in any script: nothing in a dump can run
// as script or markup, and the page makes no request.
import js from "@eslint/js";
import globals from "globals";

const markup = [
  "innerHTML",
  "outerHTML",
  "insertAdjacentHTML",
  "write",
  "writeln",
  "srcdoc",
  "setHTMLUnsafe",
  "createContextualFragment",
];
const requests = [
  "fetch",
  "XMLHttpRequest",
  "WebSocket",
  "EventSource",
  "Worker",
  "SharedWorker",
  "Image",
  "RTCPeerConnection",
  "eval",
  "Function",
  "open",
];

export default [
  { ignores: ["**/node_modules/**", "**/*.min.js"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    languageOptions: { ecmaVersion: 2023, sourceType: "module" },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-implicit-globals": "error",
      "no-shadow": "error",
      "no-var": "error",
      "one-var": ["error", "never"],
      curly: ["error", "multi-line"],
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-script-url": "error",
      "max-len": ["error", { code: 100 }],
      "max-lines-per-function": ["error", { max: 60, skipComments: true }],
      complexity: ["error", 20],
    },
  },
  {
    files: ["bufdb/page/static/*.mjs"],
    languageOptions: { globals: { ...globals.browser, uPlot: "readonly" } },
    rules: {
      "no-console": "error",
      "no-restricted-globals": ["error", ...requests],
      "no-restricted-properties": [
        "error",
        ...markup.map(property => ({ property, message: "Names are data: use textContent." })),
        ...["sendBeacon", "src", "href"].map(property => ({
          property,
          message: "The page makes no request.",
        })),
        { object: "window", property: "open", message: "The page makes no request." },
      ],
      "no-restricted-syntax": [
        "error",
        {
          selector: "ImportExpression",
          message: "The scripts become one: import by name, on one statement.",
        },
        {
          selector:
            ":matches(ExportDefaultDeclaration, ExportAllDeclaration, " +
            "ExportNamedDeclaration[declaration=null])",
          message: "The scripts become one: export where it is declared.",
        },
        {
          selector: "ImportDeclaration > :not(ImportSpecifier, Literal)",
          message: "Import names.",
        },
        {
          selector:
            "[callee.property.name='setAttribute'][arguments.0.value=/^(on|style|src|href)/]",
          message: "Handlers by addEventListener, styles by style.x.",
        },
      ],
    },
  },
  { files: ["tests/page/scripts/**/*.mjs"], languageOptions: { globals: globals.nodeBuiltin } },
];
