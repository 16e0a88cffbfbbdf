// Markdown inside a line: code, emphasis, links, addresses, citations. Text in, DOM nodes out; markup that is not closed stays text.

import { PUNCTUATION, closingParenthesis, delimiterRun, matches, matchingBrackets, runLength, withoutTail } from "./delimiters.js";
import { h } from "./dom.js";

const SPECIAL = /[\\`<!\[*_~&\nhH]/g;
const ADDRESS = /https?:\/\/[^\s<>"'`|\\^{}]+/iy;
const AUTOLINK = /<(https?:\/\/[^\s<>]+)>/iy;
const CITATION = /\[(\d{1,3}(?:\s?[,;]\s?\d{1,3}){0,9})\]/y;
const ENTITY = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#[xX]([\da-fA-F]{1,6}));/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const MAX_OPEN = 64; // openers of emphasis remembered at once: what is older stays text
const MAX_DEPTH = 8;

/**
 * What a piece of text shows as. `cite(number)` gives a node for a citation, or null. `open`: more is being written, so
 * strong text and code that are not closed yet show as they will be.
 */
export function inline(text, { cite = null, open = false, depth = 0 } = {}) {
  return new Inline(text, cite, open, depth).run();
}

/** An address people may follow: http and https alone. Null for anything else. */
export function safeAddress(text) {
  try {
    const address = new URL(text);
    return address.protocol === "https:" || address.protocol === "http:" ? address.href : null;
  } catch {
    return null; // not a whole address
  }
}

export function link(address, ...children) {
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow", title: address }, ...children);
}

class Inline {
  constructor(text, cite, open, depth) {
    this.text = text;
    this.cite = cite;
    this.open = open;
    this.depth = depth;
    this.at = 0;
    this.plain = "";
    this.out = [];
    this.openers = [];
    this.brackets = text.includes("[") ? matchingBrackets(text) : null;
  }

  run() {
    while (this.at < this.text.length) this.step();
    this.flush();
    if (this.open) this.closeStrong();
    const all = document.createDocumentFragment();
    all.append(...this.out);
    return all;
  }

  step() {
    SPECIAL.lastIndex = this.at;
    const next = SPECIAL.exec(this.text);
    const end = next ? next.index : this.text.length;
    this.plain += this.text.slice(this.at, end);
    this.at = end;
    if (!next || this.special(next[0])) return;
    this.plain += this.text[this.at];
    this.at += 1;
  }

  /** Whether the character here began something, which is then behind us. */
  special(character) {
    switch (character) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "<": return this.match(AUTOLINK, (found) => this.address(found[1]));
      case "&": return this.match(ENTITY, (found) => this.entity(found));
      case "!": return this.text[this.at + 1] === "[" && this.linkAt(this.at + 1);
      case "[": return this.linkAt(this.at) || this.citation();
      case "\n": return this.lineBreak();
      case "h":
      case "H": return this.bareAddress();
      default: return this.emphasis(character);
    }
  }

  flush() {
    if (this.plain) this.out.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  push(node) {
    this.flush();
    this.out.push(node);
  }

  match(pattern, use) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found || use(found) === false) return false;
    this.at += found[0].length;
    return true;
  }

  entity([, name, decimal, hexadecimal]) {
    const point = name ? 0 : parseInt(decimal ?? hexadecimal, decimal ? 10 : 16);
    if (!name && (point === 0 || point > 0x10ffff)) return false;
    this.plain += name ? ENTITIES[name] : String.fromCodePoint(point);
    return true;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "\n") this.push(h("br"));
    else if (next && next.charCodeAt(0) < 128 && PUNCTUATION.test(next)) this.plain += next;
    else return false;
    this.at += 2;
    return true;
  }

  lineBreak() {
    this.plain = this.plain.trimEnd();
    this.push(h("br"));
    this.at += 1;
    while (this.text[this.at] === " ") this.at += 1;
    return true;
  }

  code() {
    const ticks = runLength(this.text, this.at, "`");
    let from = this.at + ticks;
    for (;;) {
      const close = this.text.indexOf("`", from);
      if (close < 0) break;
      const size = runLength(this.text, close, "`");
      if (size === ticks) return this.pushCode(this.text.slice(this.at + ticks, close), close + size);
      from = close + size;
    }
    if (this.open && ticks === 1) return this.pushCode(this.text.slice(this.at + 1), this.text.length);
    this.plain += "`".repeat(ticks);
    this.at += ticks;
    return true;
  }

  pushCode(text, end) {
    const padded = text.length > 2 && text.startsWith(" ") && text.endsWith(" ") && text.trim();
    this.push(h("code", { text: (padded ? text.slice(1, -1) : text).replaceAll("\n", " ") }));
    this.at = end;
    return true;
  }

  address(text) {
    const address = safeAddress(text);
    if (!address || this.depth > 0) return false;
    this.push(link(address, text));
    return true;
  }

  bareAddress() {
    const before = this.text[this.at - 1] ?? " ";
    if (/[\p{L}\p{N}_]/u.test(before)) return false;
    ADDRESS.lastIndex = this.at;
    const found = ADDRESS.exec(this.text);
    if (!found) return false;
    const text = withoutTail(found[0]);
    if (this.address(text) === false) return false;
    this.at += text.length;
    return true;
  }

  /** `[label](address "title")`; an image is a link to itself, since this page loads nothing from elsewhere. */
  linkAt(start) {
    const close = this.brackets?.get(start);
    if (close === undefined || this.text[close + 1] !== "(" || this.depth >= MAX_DEPTH) return false;
    const end = closingParenthesis(this.text, close + 1);
    if (end < 0) return false;
    const target = this.text.slice(close + 2, end).trim();
    const address = safeAddress(target.replace(/\s+["'(][^"']*["')]$/, "").replace(/^<|>$/g, ""));
    const label = this.text.slice(start + 1, close);
    const shown = inline(label || (address ?? ""), { depth: this.depth + 1 });
    if (address && this.depth === 0) this.push(link(address, shown));
    else this.push(shown);
    this.at = end + 1;
    return true;
  }

  citation() {
    if (!this.cite || this.depth > 0) return false;
    return this.match(CITATION, (found) => {
      const nodes = found[1].split(/[,;]/).map((number) => this.cite(Number(number)));
      if (nodes.includes(null)) return false;
      this.plain = this.plain.trimEnd();
      for (const node of nodes) this.push(node);
      return true;
    });
  }

  emphasis(character) {
    const count = runLength(this.text, this.at, character);
    const run = delimiterRun(this.text, this.at, character, count);
    if (character === "~" && count !== 2) return false;
    this.flush();
    this.at += count;
    if (run.closes) this.close(run);
    if (run.left > 0 && run.opens) this.remember(run);
    else if (run.left > 0) this.plain += character.repeat(run.left);
    return true;
  }

  remember(run) {
    run.node = document.createTextNode(run.character.repeat(run.left));
    run.index = this.out.length;
    this.out.push(run.node);
    this.openers.push(run);
    if (this.openers.length > MAX_OPEN) this.openers.shift();
  }

  close(run) {
    while (run.left > 0) {
      const at = this.openers.findLastIndex((opener) => matches(opener, run));
      if (at < 0) return;
      const opener = this.openers[at];
      this.openers.length = at + 1;
      const used = opener.left >= 2 && run.left >= 2 ? 2 : 1;
      run.left -= used;
      this.wrap(opener, used);
    }
  }

  /** Everything since an opener goes into an element; the opener keeps what is left of its characters. */
  wrap(opener, used) {
    const tag = opener.character === "~" ? "del" : used === 2 ? "strong" : "em";
    const inner = this.out.splice(opener.index + 1);
    opener.left -= opener.character === "~" ? opener.left : used;
    opener.node.data = opener.character.repeat(opener.left);
    if (opener.left === 0) {
      this.out.pop();
      this.openers.splice(this.openers.indexOf(opener), 1);
    }
    this.out.push(h(tag, {}, ...inner));
  }

  closeStrong() {
    for (const opener of [...this.openers].reverse()) {
      if (opener.left === 2 && opener.character !== "~" && this.out.length > opener.index + 1) this.wrap(opener, 2);
    }
  }
}
