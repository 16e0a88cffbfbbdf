// The page put together: what is open, what is being answered, and what each part does when it is used.

import { addMessage, alternatives, newChat, showAlternative, shownMessages } from "./chats.js";
import { Composer } from "./composer.js";
import { openInvite, openSettings, openShortcuts } from "./dialogs.js";
import { announce, byId, copyText, icon, toast } from "./dom.js";
import { exportAll, openExport } from "./export.js";
import { openLibrary } from "./library.js";
import { Picker } from "./picker.js";
import { Reply, requestBody } from "./replies.js";
import { isDark, readSettings, showTheme, writeSettings } from "./settings.js";
import { listen } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { Thread } from "./thread.js";

const SAVE_EVERY_MS = 2000;

class App {
  constructor(library) {
    this.library = library;
    this.current = null;
    this.replies = new Map(); // conversation's id -> Reply
    this.settings = readSettings();
    this.canSearch = document.querySelector('meta[name="edgewise-search"]').content === "on";
    this.thread = new Thread({
      edit: (message, text) => this.edit(message, text),
      regenerate: (message) => this.regenerate(message),
      show: (message, by) => this.showVersion(message, by),
      enterKey: () => this.askForKey(),
    });
    this.sidebar = new Sidebar({
      open: (id) => this.open(this.library.get(id)),
      rename: (id, title) => this.rename(this.library.get(id), title),
      remove: (id) => this.remove(this.library.get(id)),
    });
    this.composer = new Composer({
      send: (text) => this.send(text),
      stop: () => this.stop(),
      editLast: () => this.thread.editLast(),
      think: (on) => this.change("think", on),
      web: (on) => this.change("web", on),
    });
    this.picker = new Picker({
      key: () => this.settings.key,
      chosen: () => this.settings.model,
      choose: (id) => this.change("model", id),
      changed: () => this.showModel(),
      locked: () => this.askForKey(),
    });
    this.wire();
  }

  wire() {
    const press = (id, name, run) => {
      if (name) byId(id).prepend(icon(name));
      byId(id).addEventListener("click", run);
    };
    press("new-chat", "plus", () => this.startNew());
    press("new-chat-top", "plus", () => this.startNew());
    press("open-settings", "settings", () => this.showSettings());
    press("open-keys", "keyboard", openShortcuts);
    press("theme-switch", null, () => this.change("theme", isDark(this.settings.theme) ? "light" : "dark"));
    press("export", "share", () => openExport(byId("export"), this.current));
    byId("latest").prepend(icon("down"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showTheme());
    addEventListener("hashchange", () => this.openFromAddress());
    listen({
      stop: () => this.sidebar.dismiss() || this.stop(),
      newChat: () => this.startNew(),
      toggleList: () => this.sidebar.toggle(),
      find: () => this.sidebar.find(),
      copyLast: () => this.copyLast(),
    });
    addEventListener("pagehide", () => this.replies.forEach((_, id) => this.library.save(this.library.get(id))));
  }

  start() {
    this.showTheme();
    this.openFromAddress();
    this.composer.focus();
    this.picker.look();
    if (!this.library.lasting) toast("This browser keeps nothing here: conversations end with the page.");
  }

  // Conversations

  openFromAddress() {
    const chat = this.library.get(location.hash.slice(1));
    if (chat !== this.current || !chat) this.open(chat);
  }

  open(chat) {
    this.current = chat;
    const address = chat ? `#${chat.id}` : location.pathname + location.search;
    if (location.hash.slice(1) !== (chat?.id ?? "")) history.pushState(null, "", address);
    this.thread.show(chat);
    this.thread.toEnd();
    this.sidebar.chosen();
    this.refresh();
  }

  startNew() {
    this.open(null);
    this.composer.focus();
  }

  rename(chat, title) {
    Object.assign(chat, { title, named: true });
    this.library.save(chat);
    this.refresh();
  }

  remove(chat) {
    this.replies.get(chat.id)?.stop();
    this.library.remove(chat);
    if (chat === this.current) this.startNew();
    this.refresh();
    toast("Conversation deleted.", () => this.bringBack(chat), "Undo");
  }

  bringBack(chat) {
    this.library.add(chat);
    this.open(chat);
  }

  // Messages

  send(text) {
    const chat = this.current ?? newChat(this.picker.current?.id ?? "");
    const parent = shownMessages(chat).at(-1)?.id ?? null;
    const message = addMessage(chat, parent, "user", text);
    this.library.add(chat);
    if (chat !== this.current) this.open(chat);
    this.answer(chat, message);
  }

  edit(message, text) {
    this.replies.get(this.current.id)?.stop();
    this.answer(this.current, addMessage(this.current, message.parent, "user", text));
  }

  regenerate(message) {
    if (this.replies.has(this.current.id)) return;
    this.answer(this.current, this.current.messages[message.parent]);
  }

  /** Asks the model for an answer to `message`. */
  async answer(chat, message) {
    const answer = addMessage(chat, message.id, "assistant");
    const reply = new Reply(answer, () => this.thread.changed(answer));
    const saving = setInterval(() => this.library.save(chat), SAVE_EVERY_MS);
    this.replies.set(chat.id, reply);
    this.thread.show(chat === this.current ? chat : this.current);
    this.thread.toEnd();
    this.refresh();
    announce("Answering");
    const body = requestBody(chat, message, { ...this.settings, model: this.picker.current?.id, think: this.settings.think && this.canThink });
    await reply.run(body, { key: this.settings.key, web: this.settings.web && this.canSearch });
    clearInterval(saving);
    if (this.replies.get(chat.id) === reply) this.replies.delete(chat.id);
    chat.updated = Date.now();
    this.library.save(chat);
    this.refresh();
    announce({ done: "Answer complete", stopped: "Stopped" }[answer.state] ?? answer.error);
    if (answer.needsKey) this.askForKey();
  }

  stop() {
    this.replies.get(this.current?.id)?.stop();
  }

  showVersion(message, by) {
    showAlternative(this.current, message);
    this.library.save(this.current);
    this.thread.show(this.current);
    const others = alternatives(this.current, message);
    const end = by < 0 ? message === others[0] : message === others.at(-1);
    this.thread.focusOn(message.id, `.version-${by < 0 === end ? "right" : "left"}`);
    this.refresh();
  }

  copyLast() {
    const answer = shownMessages(this.current ?? newChat("")).findLast((message) => message.role === "assistant" && message.text);
    if (answer) copyText(answer.text).then(() => toast("Copied the last answer."));
  }

  // Settings

  change(name, value) {
    this.settings = { ...this.settings, [name]: value };
    writeSettings(this.settings);
    if (name === "theme") this.showTheme();
    if (name === "key") this.picker.look();
    this.showModel();
  }

  showSettings() {
    openSettings(this.settings, (name, value) => this.change(name, value), {
      exportAll: () => exportAll(this.library.newestFirst),
      deleteAll: () => this.removeAll(),
    });
  }

  removeAll() {
    for (const reply of this.replies.values()) reply.stop();
    this.library.clear();
    this.startNew();
    toast("All conversations are deleted.");
  }

  askForKey() {
    openInvite(async (key) => {
      this.change("key", key);
      await this.picker.look();
      return !this.picker.problem?.needsKey;
    });
  }

  showTheme() {
    showTheme(this.settings.theme, byId("theme-switch"));
  }

  get canThink() {
    return this.picker.current?.thinks !== false;
  }

  showModel() {
    const model = this.picker.current;
    const line = [model?.id, model?.window && `${model.window.toLocaleString("en")} tokens`].filter(Boolean);
    byId("welcome-line").textContent = [...line, "Conversations stay in this browser"].join(" · ");
    this.composer.setSwitches(this.settings, { canThink: this.canThink, canSearch: this.canSearch });
  }

  /** Everything that depends on which conversations there are and what is being written. */
  refresh() {
    this.sidebar.show(this.library.newestFirst, this.current?.id, this.replies);
    this.composer.setWriting(this.replies.has(this.current?.id));
    byId("title").textContent = this.current?.title ?? "";
    byId("export").hidden = !this.current;
    document.title = this.current ? `${this.current.title} · Edgewise` : "Edgewise";
    this.showModel();
  }
}

new App(await openLibrary()).start();
