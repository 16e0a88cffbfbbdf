// Markdown as blocks: headings, lists, tables, quotes, code, rules, paragraphs. HTML in the text is text.
//
// A `MarkdownView` is updated as an answer grows. Blocks whose source is what it was keep their nodes, so a long answer costs
// what its last block costs.

import { CodeView } from "./code.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)(.*))?$/;
const TASK = /^\[([ xX])\] /;
const MAX_DEPTH = 12;

export class MarkdownView {
  constructor(node) {
    this.node = node;
    this.shown = [];
    this.version = null;
  }

  /** Shows `text`. `open`: it goes on being written. `cite` as for `inline`; a new `version` means that it gives other nodes. */
  update(text, { open = false, cite = null, version = null } = {}) {
    if (version !== this.version) this.clear();
    this.version = version;
    const blocks = split(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
    blocks.forEach((block, index) => this.place(index, block, { cite, open: open && index === blocks.length - 1, depth: 0 }));
    for (const extra of this.shown.splice(blocks.length)) extra.node.remove();
  }

  clear() {
    this.shown = [];
    this.node.replaceChildren();
  }

  place(index, block, context) {
    const old = this.shown[index];
    const source = block.lines.join("\n");
    if (old && old.source === source && old.kind === block.kind && old.open === context.open) return;
    const entry = { source, kind: block.kind, open: context.open };
    if (old?.code && block.kind === "code") {
      Object.assign(entry, { code: old.code, node: old.node });
      entry.code.update(block.text, block.info, context.open);
    } else {
      Object.assign(entry, render(block, context));
      if (old) old.node.replaceWith(entry.node);
      else this.node.append(entry.node);
    }
    this.shown[index] = entry;
  }
}

/** Lines -> blocks, each with the lines it was read from. */
export function split(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = readBlock(lines, at);
    block.lines = lines.slice(at, block.end);
    blocks.push(block);
    at = block.end;
  }
  return blocks;
}

function readBlock(lines, at) {
  const line = lines[at];
  let found;
  if ((found = FENCE.exec(line))) return readFence(lines, at, found);
  if ((found = HEADING.exec(line))) return { kind: "heading", level: found[1].length, text: headingText(line), end: at + 1 };
  if (RULE.test(line)) return { kind: "rule", end: at + 1 };
  if (QUOTE.test(line)) return { kind: "quote", end: endOf(lines, at, (next) => QUOTE.test(next)) };
  if (ITEM.test(line)) return readList(lines, at);
  if (startsTable(lines, at)) return { kind: "table", end: endOf(lines, at, (next) => next.includes("|")) };
  return { kind: "paragraph", end: endOfParagraph(lines, at) };
}

function endOf(lines, at, belongs) {
  let end = at + 1;
  while (end < lines.length && belongs(lines[end])) end += 1;
  return end;
}

function readFence(lines, at, [, indent, fence, info]) {
  const closes = (line) => {
    const text = line.trim();
    return text.length >= fence.length && text === fence[0].repeat(text.length);
  };
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end += 1;
  const text = lines.slice(at + 1, end).map((line) => withoutIndent(line, indent.length)).join("\n");
  return { kind: "code", info: info.trim(), text, end: Math.min(end + 1, lines.length) };
}

function headingText(line) {
  const text = line.trim().replace(/^#+/, "").trim();
  const bare = text.replace(/#+$/, "");
  return bare === "" || bare.endsWith(" ") ? bare.trim() : text;
}

function endOfParagraph(lines, at) {
  return endOf(lines, at, (line) => line.trim() && !interrupts(line));
}

function interrupts(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return Boolean(item && item[4] && (item[2].length === 1 || /^1[.)]$/.test(item[2])));
}

/** A list reaches as far as its items, and what is indented below them, with blank lines between. */
function readList(lines, at) {
  const first = ITEM.exec(lines[at]);
  const base = first[1].length;
  const kind = listKind(first[2]);
  let end = at + 1;
  let blank = false;
  for (let next = end; next < lines.length; next += 1) {
    const line = lines[next];
    if (!line.trim()) {
      blank = true;
      continue;
    }
    const item = ITEM.exec(line);
    const sibling = item && item[1].length < base + 2 && listKind(item[2]) === kind && !RULE.test(line);
    const inside = indentOf(line) >= base + 2;
    if (!sibling && !inside && (blank || interrupts(line))) break;
    blank = false;
    end = next + 1;
  }
  return { kind: "list", end };
}

const listKind = (marker) => (/\d/.test(marker) ? marker.at(-1) : marker);
const indentOf = (line) => line.length - line.trimStart().length;
const withoutIndent = (line, most) => line.slice(Math.min(most, indentOf(line)));

function startsTable(lines, at) {
  if (!lines[at].includes("|") || at + 1 >= lines.length) return false;
  const rule = cells(lines[at + 1]);
  return lines[at + 1].includes("-") && rule.length === cells(lines[at]).length && rule.every((cell) => /^:?-+:?$/.test(cell));
}

/** The cells of a row; `\|` is no border. */
function cells(line) {
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  return text.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

// Blocks -> nodes.

function render(block, context) {
  switch (block.kind) {
    case "code": {
      const code = new CodeView();
      code.update(block.text, block.info, context.open);
      return { code, node: code.node };
    }
    case "heading": return { node: h(`h${Math.min(6, block.level + 2)}`, { class: `level-${block.level}` }, inline(block.text, context)) };
    case "rule": return { node: h("hr") };
    case "quote": return { node: h("blockquote", {}, ...nested(block.lines.map((line) => line.replace(/^ *> ?/, "")), context)) };
    case "list": return { node: renderList(block.lines, context) };
    case "table": return { node: renderTable(block.lines, context) };
    default: return { node: h("p", {}, inline(block.lines.map((line) => line.trimStart()).join("\n").trimEnd(), inlineContext(context))) };
  }
}

const inlineContext = ({ cite, open }) => ({ cite, open });

function nested(lines, context, { tight = false } = {}) {
  if (context.depth >= MAX_DEPTH) return [document.createTextNode(lines.join("\n"))];
  const inner = { ...context, depth: context.depth + 1 };
  const blocks = split(lines);
  return blocks.map((block, index) => {
    const last = { ...inner, open: context.open && index === blocks.length - 1 };
    const node = render(block, last).node;
    if (!tight || block.kind !== "paragraph") return node;
    const bare = document.createDocumentFragment();
    bare.append(...node.childNodes);
    return bare;
  });
}

function renderList(lines, context) {
  const items = listItems(lines);
  const marker = ITEM.exec(lines[0])[2];
  const ordered = /\d/.test(marker);
  const loose = items.some((item, index) => index < items.length - 1 && !item.at(-1).trim());
  const start = ordered && parseInt(marker, 10) !== 1 ? String(parseInt(marker, 10)) : null;
  const nodes = items.map((item, index) => renderItem(item, { ...context, open: context.open && index === items.length - 1 }, !loose));
  return h(ordered ? "ol" : "ul", { class: loose ? "loose" : null, start }, ...nodes);
}

/** The lines of each item, without marker and indent. */
function listItems(lines) {
  const base = indentOf(lines[0]);
  const kind = listKind(ITEM.exec(lines[0])[2]);
  const items = [];
  let indent = 0;
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found && found[1].length < base + 2 && listKind(found[2]) === kind) {
      indent = found[1].length + found[2].length + Math.min(found[3]?.length ?? 1, 4);
      items.push([found[4] ?? ""]);
    } else {
      items.at(-1).push(withoutIndent(line, indent));
    }
  }
  return items;
}

function renderItem(lines, context, tight) {
  const task = TASK.exec(lines[0]);
  if (!task) return h("li", {}, ...nested(lines, context, { tight }));
  const done = task[1] !== " ";
  const box = h("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do" });
  return h("li", { class: "task" }, box, ...nested([lines[0].slice(4), ...lines.slice(1)], context, { tight }));
}

function renderTable(lines, context) {
  const aligns = cells(lines[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : null));
  const row = (line, tag) => {
    const texts = cells(line).slice(0, aligns.length);
    while (texts.length < aligns.length) texts.push("");
    return h("tr", {}, ...texts.map((text, column) => h(tag, { class: aligns[column], scope: tag === "th" ? "col" : null }, inline(text, inlineContext(context)))));
  };
  const body = lines.slice(2).map((line) => row(line, "td"));
  const table = h("table", {}, h("thead", {}, row(lines[0], "th")), h("tbody", {}, ...body));
  return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}
