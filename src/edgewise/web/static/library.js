// The conversations there are: in memory all of them, in the browser's store what is to last.

import { toast } from "./dom.js";
import { openStore } from "./store.js";

export async function openLibrary() {
  const store = await openStore();
  const chats = await store.all().catch(() => []);
  return new Library(store, chats.map(settled));
}

/** An answer that was being written when the page was left counts as stopped. */
function settled(chat) {
  for (const message of Object.values(chat.messages)) if (message.state === "writing") message.state = "stopped";
  return chat;
}

class Library {
  constructor(store, chats) {
    this.store = store;
    this.chats = new Map(chats.map((chat) => [chat.id, chat]));
  }

  /** Whether conversations outlive the page. */
  get lasting() {
    return this.store.lasting;
  }

  get newestFirst() {
    return [...this.chats.values()].sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.chats.get(id) ?? null;
  }

  add(chat) {
    this.chats.set(chat.id, chat);
    this.save(chat);
  }

  /** One that was deleted meanwhile stays deleted. */
  save(chat) {
    if (!this.chats.has(chat.id)) return;
    this.store.put(chat).catch((error) => toast(`This conversation could not be kept: ${error.message}`));
  }

  remove(chat) {
    this.chats.delete(chat.id);
    this.store.remove(chat.id);
  }

  clear() {
    this.chats.clear();
    this.store.clear();
  }
}
