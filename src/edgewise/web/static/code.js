// A block of code: its language, a copy button, colours.

import { copyButton, h } from "./dom.js";
import { highlight } from "./highlight.js";

const SMALL_CHARS = 4000; // coloured on every update while it grows; longer code now and then
const PAUSE_MS = 700;

export class CodeView {
  constructor() {
    this.text = "";
    this.language = null;
    this.colouredAt = 0;
    this.label = h("span", { class: "code-language" });
    this.code = h("code");
    const copy = copyButton("Copy code", () => this.text);
    this.pre = h("pre", { tabindex: "0", "aria-label": "Code" }, this.code);
    this.node = h("figure", { class: "code" }, h("figcaption", {}, this.label, copy), this.pre);
  }

  /** `open`: it goes on being written. New text shows at once; its colours may come a moment later. */
  update(text, info, open) {
    const language = info.split(/[\s,{]/)[0].toLowerCase();
    const grows = language === this.language && text.startsWith(this.text);
    const added = text.slice(this.text.length);
    this.label.textContent = language || "text";
    this.text = text;
    this.language = language;
    const due = !open || text.length < SMALL_CHARS || performance.now() - this.colouredAt > PAUSE_MS;
    if (!grows || due) this.colour();
    else this.code.append(added);
  }

  colour() {
    this.colouredAt = performance.now();
    this.code.replaceChildren(highlight(this.text, this.language));
  }
}
