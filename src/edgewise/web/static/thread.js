// The messages of the conversation that is open, and where the reader is in them.

import { alternatives, shownMessages } from "./chats.js";
import { byId } from "./dom.js";
import { messageView } from "./message.js";

const NEAR_PX = 60;

export class Thread {
  constructor(actions) {
    this.actions = actions;
    this.list = byId("thread");
    this.scroll = byId("scroll");
    this.latest = byId("latest");
    this.views = new Map();
    this.pending = new Set();
    this.follows = true;
    this.scroll.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.latest.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.follows && this.toEnd()).observe(this.list);
  }

  /** Shows a conversation, or none. Views of messages that stay are kept. */
  show(chat) {
    const messages = chat ? shownMessages(chat) : [];
    const views = messages.map((message) => {
      const others = alternatives(chat, message);
      const old = this.views.get(message.id);
      return old && old.others === others.length ? old : { view: messageView(message, others, this.actions), others: others.length };
    });
    this.views = new Map(messages.map((message, index) => [message.id, views[index]]));
    this.list.replaceChildren(...views.map(({ view }) => view.node));
    byId("welcome").hidden = messages.length > 0;
    this.list.hidden = messages.length === 0;
  }

  /** A message has changed: its view follows with the next frame. */
  changed(message) {
    if (this.pending.size === 0) requestAnimationFrame(() => this.updateAll());
    this.pending.add(message.id);
  }

  updateAll() {
    for (const id of this.pending) this.views.get(id)?.view.update();
    this.pending.clear();
    if (this.follows) this.toEnd();
  }

  editLast() {
    const own = [...this.views.values()].filter(({ view }) => view.edit);
    own.at(-1)?.view.edit();
  }

  focusOn(id, selector) {
    this.views.get(id)?.view.node.querySelector(selector)?.focus();
  }

  toEnd() {
    this.follows = true;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.latest.hidden = true;
  }

  onScroll() {
    const left = this.scroll.scrollHeight - this.scroll.scrollTop - this.scroll.clientHeight;
    this.follows = left < NEAR_PX;
    this.latest.hidden = this.follows;
  }
}
