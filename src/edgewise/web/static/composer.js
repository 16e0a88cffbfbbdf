// Where messages are written: the field, its switches, and the button that sends or stops.

import { byId, icon } from "./dom.js";
import { fit } from "./message.js";

export class Composer {
  /** `on`: send(text), stop(), editLast(), think(boolean), web(boolean). */
  constructor(on) {
    this.on = on;
    this.writing = false;
    this.field = byId("prompt");
    this.button = byId("send");
    this.think = byId("think");
    this.web = byId("web");
    this.think.prepend(icon("spark"));
    this.web.prepend(icon("globe"));
    this.touch = matchMedia("(pointer: coarse)").matches;
    this.field.addEventListener("input", () => this.refresh());
    this.field.addEventListener("keydown", (event) => this.onKey(event));
    this.button.addEventListener("click", () => (this.writing ? on.stop() : this.submit()));
    this.think.addEventListener("click", () => on.think(toggled(this.think)));
    this.web.addEventListener("click", () => on.web(toggled(this.web)));
    byId("composer").addEventListener("pointerdown", (event) => this.onPointer(event));
    this.refresh();
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !this.touch) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && !this.field.value) {
      event.preventDefault();
      this.on.editLast();
    }
  }

  /** Anywhere in the box is in the field. */
  onPointer(event) {
    if (event.target.closest("button, textarea")) return;
    event.preventDefault();
    this.field.focus();
  }

  submit() {
    const text = this.field.value.trim();
    if (!text || this.writing) return;
    this.field.value = "";
    this.refresh();
    this.on.send(text);
  }

  /** Whether the open conversation's answer is being written: the button stops it then. */
  setWriting(writing) {
    this.writing = writing;
    this.refresh();
  }

  setSwitches({ think, web }, { canThink, canSearch }) {
    this.think.setAttribute("aria-pressed", String(think && canThink));
    this.think.disabled = !canThink;
    this.think.title = canThink ? "Let the model think before it answers" : "This model does not think aloud";
    this.web.hidden = !canSearch;
    this.web.setAttribute("aria-pressed", String(web && canSearch));
    this.web.title = "Search the web for this answer";
  }

  refresh() {
    fit(this.field);
    const name = this.writing ? "stop" : "send";
    if (this.button.dataset.shows !== name) this.button.replaceChildren(icon(name));
    this.button.dataset.shows = name;
    this.button.setAttribute("aria-label", this.writing ? "Stop" : "Send");
    this.button.title = this.writing ? "Stop (Esc)" : "Send (Enter)";
    this.button.disabled = !this.writing && !this.field.value.trim();
  }

  focus() {
    if (!this.touch) this.field.focus(); // on a phone the keyboard would cover the page
  }
}

function toggled(button) {
  const on = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(on));
  return on;
}
