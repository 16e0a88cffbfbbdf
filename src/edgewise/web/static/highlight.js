// Colours for code: one pass of one pattern per language. Good enough to read by; no parser.

import { LANGUAGES, NAMES } from "./languages.js";

const MAX_CHARS = 200_000;
const compiled = new Map();

/** `text` as a fragment of spans. Languages nobody knows stay plain. */
export function highlight(text, language) {
  const all = document.createDocumentFragment();
  const grammar = grammarOf(language);
  if (!grammar || text.length > MAX_CHARS) {
    all.append(text);
    return all;
  }
  let at = 0;
  for (const found of text.matchAll(grammar.pattern)) {
    if (found.index > at) all.append(text.slice(at, found.index));
    all.append(span(found, grammar.kinds));
    at = found.index + found[0].length;
  }
  all.append(text.slice(at));
  return all;
}

function span(found, kinds) {
  const node = document.createElement("span");
  node.className = `hl-${kinds[found.slice(1).findIndex((group) => group !== undefined)]}`;
  node.textContent = found[0];
  return node;
}

function grammarOf(language) {
  const name = NAMES[language] ?? language;
  if (!Object.hasOwn(LANGUAGES, name)) return null;
  if (!compiled.has(name)) {
    const { rules, flags = "" } = LANGUAGES[name];
    const pattern = new RegExp(rules.map(([, source]) => `(${source})`).join("|"), `gm${flags}`);
    compiled.set(name, { pattern, kinds: rules.map(([kind]) => kind) });
  }
  return compiled.get(name);
}
