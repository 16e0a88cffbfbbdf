// The list of conversations: by age, found by title, renamed and deleted in place. On a phone it is a drawer.

import { byId, h, icon, iconButton } from "./dom.js";

const DAY_MS = 86_400_000;

export class Sidebar {
  /** `on`: open(id), rename(id, title), remove(id). */
  constructor(on) {
    this.on = on;
    this.chats = [];
    this.side = byId("side");
    this.narrow = matchMedia("(max-width: 800px)");
    byId("side-open").append(icon("menu"));
    byId("side-close").append(icon("close"));
    byId("side-open").addEventListener("click", () => this.toggle());
    byId("side-close").addEventListener("click", () => this.close());
    byId("scrim").addEventListener("click", () => this.close());
    byId("filter").addEventListener("input", () => this.render());
    this.narrow.addEventListener("change", () => this.fitWindow());
    this.fitWindow();
  }

  fitWindow() {
    this.isOpen = !this.narrow.matches;
    this.settle();
  }

  /** Whether it was a drawer over the page, which is closed now. */
  dismiss() {
    const covers = this.isOpen && this.narrow.matches;
    if (covers) this.close();
    return covers;
  }

  /** On a wide window the list stays; on a narrow one it comes and goes, and out of sight it is out of reach. */
  settle() {
    document.documentElement.dataset.side = this.isOpen ? "open" : "closed";
    this.side.inert = !this.isOpen;
    byId("side-open").setAttribute("aria-expanded", String(this.isOpen));
  }

  toggle() {
    this.isOpen = !this.isOpen;
    this.settle();
    if (this.isOpen && this.narrow.matches) byId("side-close").focus();
  }

  close() {
    this.isOpen = false;
    this.settle();
    byId("side-open").focus();
  }

  find() {
    if (!this.isOpen) this.toggle();
    byId("filter-box").hidden = false;
    byId("filter").focus();
  }

  /** After something was chosen in it: a drawer is in the way then. */
  chosen() {
    if (!this.narrow.matches) return;
    this.isOpen = false;
    this.settle();
  }

  show(chats, currentId, writing) {
    this.chats = chats;
    this.currentId = currentId;
    this.writing = writing;
    this.render();
  }

  render() {
    if (byId("chats").querySelector(".rename")) return; // a name is being typed; it ends with another render
    const focused = document.activeElement;
    const [place, label] = [focused.closest("#chats [data-id]")?.dataset.id, focused.getAttribute("aria-label")];
    const wanted = byId("filter").value.trim().toLowerCase();
    byId("filter-box").hidden = this.chats.length < 8 && !wanted;
    const found = this.chats.filter((chat) => chat.title.toLowerCase().includes(wanted));
    const nodes = [];
    let age = null;
    for (const chat of found) {
      if (ageOf(chat) !== age) nodes.push(h("li", { class: "age", text: (age = ageOf(chat)) }));
      nodes.push(this.row(chat));
    }
    if (!found.length) nodes.push(h("li", { class: "none", text: wanted ? "Nothing found" : "No conversations yet" }));
    byId("chats").replaceChildren(...nodes);
    if (place) this.focusOn(place, label);
  }

  /** The button of a conversation with this label; without one, its name. */
  focusOn(id, label = null) {
    const buttons = [...byId("chats").querySelectorAll(`[data-id="${id}"] button`)];
    (buttons.find((button) => button.getAttribute("aria-label") === label) ?? buttons[0])?.focus();
  }

  row(chat) {
    const current = chat.id === this.currentId;
    const name = h("button", { type: "button", class: "chat-name", "aria-current": current ? "true" : null, title: chat.title, on: { click: () => this.on.open(chat.id), dblclick: () => this.rename(row, chat) } }, h("span", { text: chat.title }));
    if (this.writing.has(chat.id)) name.append(h("span", { class: "dot waits", role: "img", "aria-label": "being answered" }));
    const row = h("li", { class: current ? "chat current" : "chat", data: { id: chat.id } }, name,
      h("span", { class: "chat-buttons" }, iconButton("edit", `Rename ${chat.title}`, () => this.rename(row, chat)), iconButton("trash", `Delete ${chat.title}`, () => this.on.remove(chat.id))));
    return row;
  }

  rename(row, chat) {
    const field = h("input", { class: "rename", "aria-label": "Name of the conversation", maxlength: "200" });
    field.value = chat.title;
    let done = false;
    const finish = (keep) => {
      if (done) return;
      done = true;
      const title = field.value.trim();
      field.remove();
      if (keep && title && title !== chat.title) this.on.rename(chat.id, title);
      else this.render();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      finish(event.key === "Enter");
      this.focusOn(chat.id);
    });
    field.addEventListener("blur", () => finish(true));
    row.replaceChildren(field);
    field.focus();
    field.select();
  }
}

function ageOf({ updated }) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (updated >= today) return "Today";
  if (updated >= today - DAY_MS) return "Yesterday";
  if (updated >= today - 7 * DAY_MS) return "Last seven days";
  return new Date(updated).toLocaleDateString("en", { month: "long", year: "numeric" });
}
