// Which model answers, and how it is: the button in the header, its menu, and the look every few seconds.

import { listModels } from "./api.js";
import { byId } from "./dom.js";
import { closeMenu, openMenu } from "./menu.js";

const EVERY_MS = 15_000;

export class Picker {
  /** `on`: key() -> string, chosen() -> string, choose(id), changed(), locked(). */
  constructor(on) {
    this.on = on;
    this.models = [];
    this.problem = null;
    this.looking = true;
    this.button = byId("model");
    this.button.addEventListener("click", () => this.open());
    setInterval(() => document.visibilityState === "visible" && this.look(), EVERY_MS);
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.look());
  }

  /** The model that answers now: the one that was chosen, or the first that can. */
  get current() {
    const able = this.models.filter((model) => model.chats);
    return able.find((model) => model.id === this.on.chosen()) ?? able.find((model) => model.up && model.loaded) ?? able[0] ?? null;
  }

  async look() {
    try {
      this.models = await listModels(this.on.key());
      this.problem = null;
    } catch (error) {
      if (error.needsKey && !this.problem?.needsKey) this.on.locked();
      this.problem = error;
    }
    this.looking = false;
    this.show();
    this.on.changed();
  }

  show() {
    const { current, problem } = this;
    const words = problem?.needsKey ? "Key needed" : problem ? "Not reachable" : current ? current.id : this.looking ? "Looking for models" : "No model";
    const state = problem || !current ? (this.looking ? "waits" : "down") : stateOf(current);
    byId("model-name").textContent = words;
    byId("model-dot").className = `dot ${state}`;
    this.button.setAttribute("aria-label", `Model: ${words}${current && !problem ? `, ${STATES[state]}` : ""}. Choose another`);
    this.button.title = problem?.message ?? (current ? `${current.id}: ${STATES[state]}` : words);
  }

  open() {
    if (this.problem?.needsKey) {
      this.on.locked();
      return;
    }
    if (!this.models.length) {
      if (!closeMenu()) this.look();
      return;
    }
    const current = this.current;
    const entries = this.models.filter((model) => model.chats).map((model) => ({
      label: model.id,
      detail: detailOf(model),
      state: stateOf(model),
      checked: model === current,
      run: () => this.choose(model),
    }));
    openMenu(this.button, "Model", entries);
  }

  choose(model) {
    this.on.choose(model.id);
    this.show();
    this.on.changed();
  }
}

const STATES = { ready: "ready", waits: "not in memory", down: "not reachable" };

const stateOf = (model) => (!model.up ? "down" : model.loaded ? "ready" : "waits");

function detailOf(model) {
  const window = model.window ? `${model.window.toLocaleString("en")} tokens` : null;
  return [STATES[stateOf(model)], window, model.alias ? `alias of ${model.alias}` : null].filter(Boolean).join(" · ");
}
