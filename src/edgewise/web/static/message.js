// One message as it shows. An assistant's is updated while it is written; its parts keep their nodes.

import { copyButton, h, icon, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { citer, researchView, sourcesView } from "./research.js";

/** What both kinds of message need: `actions` has edit, regenerate, show and enterKey. */
export function messageView(message, others, actions) {
  return message.role === "user" ? new UserView(message, others, actions) : new AssistantView(message, others, actions);
}

class UserView {
  constructor(message, others, actions) {
    this.message = message;
    this.actions = actions;
    this.body = h("div", { class: "said", text: message.text });
    this.foot = h("div", { class: "message-foot" }, ...versions(message, others, actions), iconButton("edit", "Edit this message", () => this.edit(), { class: "icon-button edit" }), copyButton("Copy this message", () => message.text));
    this.article = h("article", { "aria-label": "You" }, this.body, this.foot);
    this.node = h("li", { class: "message user", data: { id: message.id } }, this.article);
  }

  update() {}

  edit() {
    const field = h("textarea", { class: "edit-field", "aria-label": "Edit your message", rows: "2" });
    field.value = this.message.text;
    const done = () => {
      this.article.replaceChildren(this.body, this.foot);
      this.foot.querySelector(".edit").focus();
    };
    const save = () => {
      const text = field.value.trim();
      done();
      if (text) this.actions.edit(this.message, text);
    };
    const keys = (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) save();
      else if (event.key === "Escape") done();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    field.addEventListener("keydown", keys);
    field.addEventListener("input", () => fit(field));
    const buttons = h("div", { class: "edit-buttons" }, h("small", { text: "The earlier version is kept." }), h("button", { type: "button", class: "quiet", text: "Cancel", on: { click: done } }), h("button", { type: "button", class: "primary", text: "Send", on: { click: save } }));
    this.article.replaceChildren(h("div", { class: "editor" }, field, buttons));
    fit(field);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

/** As high as its text, within what the style allows. */
export function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

class AssistantView {
  constructor(message, others, actions) {
    this.message = message;
    this.others = others;
    this.actions = actions;
    this.steps = h("div");
    this.thoughts = new ThoughtsView();
    this.body = h("div", { class: "content" });
    this.markdown = new MarkdownView(this.body);
    this.tail = h("div");
    this.foot = h("div", { class: "message-foot" });
    this.article = h("article", { "aria-label": "Assistant" }, this.steps, this.thoughts.node, this.body, this.tail, this.foot);
    this.node = h("li", { class: "message assistant", data: { id: message.id } }, this.article);
    this.numSteps = -1;
    this.calls = [];
    this.update();
  }

  update() {
    const { message } = this;
    const writing = message.state === "writing";
    this.article.setAttribute("aria-busy", String(writing));
    this.node.classList.toggle("writing", writing);
    this.node.classList.toggle("waiting", writing && !message.text && !message.reasoning);
    if (message.steps.length !== this.numSteps) this.updateSteps();
    this.thoughts.update(message, writing && !message.text);
    this.markdown.update(message.text, { open: writing, cite: citer(message.sources), version: message.sources.length });
    this.updateTail(writing);
  }

  updateSteps() {
    this.numSteps = this.message.steps.length;
    this.steps.replaceChildren(...[researchView(this.message.steps)].filter(Boolean));
  }

  updateTail(writing) {
    const { message } = this;
    if (writing && this.shownState === "writing" && message.calls.length === 0) return; // nothing below the text changes meanwhile
    this.shownState = message.state;
    const parts = [...this.callNodes(), sourcesView(message.sources), this.notice()];
    const shown = parts.filter(Boolean);
    if (shown.length !== this.tail.childNodes.length || shown.some((node) => node.parentNode !== this.tail)) this.tail.replaceChildren(...shown);
    this.foot.replaceChildren(...(writing ? [] : this.footParts()));
  }

  /** A call keeps its node while it grows: one that was opened stays open. */
  callNodes() {
    return this.message.calls.filter(Boolean).map((call, index) => {
      const view = (this.calls[index] ??= new CallView());
      view.update(call);
      return view.node;
    });
  }

  notice() {
    const { message } = this;
    if (message.state === "stopped") return h("p", { class: "notice", text: message.text ? "Stopped." : "Stopped before it began." });
    if (message.finish === "length" && message.text) return h("p", { class: "notice", text: "Cut off at the limit of tokens." });
    if (!message.error) return null;
    const again = message.needsKey
      ? h("button", { type: "button", class: "quiet", text: "Enter a key", on: { click: () => this.actions.enterKey() } })
      : h("button", { type: "button", class: "quiet", text: "Try again", on: { click: () => this.actions.regenerate(message) } });
    return h("div", { class: "problem", role: "alert" }, h("p", { text: message.error }), again);
  }

  footParts() {
    const { message } = this;
    return [
      ...versions(message, this.others, this.actions),
      message.text && copyButton("Copy this answer", () => message.text),
      !message.error && iconButton("again", "Answer again", () => this.actions.regenerate(message)),
      statsView(message),
    ].filter(Boolean);
  }
}

/** What the model thought, folded; open while nothing else shows yet is left to the reader. */
class ThoughtsView {
  constructor() {
    this.label = h("span");
    this.text = h("div", { class: "thoughts-text" });
    this.node = h("details", { class: "thoughts", hidden: true }, h("summary", {}, icon("spark"), this.label), this.text);
    this.shown = "";
  }

  update({ reasoning, thoughtSeconds }, thinking) {
    this.node.hidden = !reasoning.trim();
    if (this.node.hidden) return;
    this.node.classList.toggle("going", thinking);
    this.label.textContent = thinking ? "Thinking" : thoughtSeconds ? `Thought for ${seconds(thoughtSeconds)}` : "Thoughts";
    const text = reasoning.trim();
    if (text.startsWith(this.shown) && this.shown) this.text.append(text.slice(this.shown.length));
    else this.text.textContent = text;
    this.shown = text;
  }
}

class CallView {
  constructor() {
    this.name = h("code");
    this.arguments = h("code");
    const given = h("pre", { tabindex: "0", "aria-label": "Arguments" }, this.arguments);
    this.node = h("details", { class: "call" }, h("summary", {}, icon("tool"), "Called ", this.name), given);
  }

  update(call) {
    this.name.textContent = call.name;
    this.arguments.textContent = readable(call.arguments);
  }
}

function readable(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // still coming, or no JSON
  }
}

/** ‹ 2 / 3 › where a message has alternatives. */
function versions(message, others, actions) {
  if (others.length < 2) return [];
  const at = others.indexOf(message);
  const step = (by, label, name) => iconButton(name, label, () => actions.show(others[at + by], by), { class: `icon-button version-${name}`, disabled: !others[at + by] });
  const count = h("span", { class: "version-count", text: `${at + 1} / ${others.length}`, "aria-label": `Version ${at + 1} of ${others.length}` });
  return [h("span", { class: "versions", role: "group", "aria-label": "Versions" }, step(-1, "Earlier version", "left"), count, step(1, "Later version", "right"))];
}

function statsView({ stats, model }) {
  if (!stats) return null;
  const parts = [
    model,
    stats.tokens !== null && `${number(stats.tokens)} tokens`,
    stats.perSecond && `${stats.perSecond < 10 ? stats.perSecond.toFixed(1) : Math.round(stats.perSecond)} tok/s`,
    `first token ${seconds(stats.firstSeconds)}`,
    stats.cachedTokens !== null && stats.promptTokens && `${number(stats.cachedTokens)} of ${number(stats.promptTokens)} cached`,
  ].filter(Boolean);
  return h("span", { class: "stats", title: `${seconds(stats.totalSeconds)} in all` }, ...parts.map((text) => h("span", { text })));
}

const number = (value) => value.toLocaleString("en");
const seconds = (value) => (value < 0.995 ? `${Math.max(1, Math.round(value * 1000))} ms` : value < 59.5 ? `${value.toFixed(value < 9.95 ? 1 : 0)} s` : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`);
