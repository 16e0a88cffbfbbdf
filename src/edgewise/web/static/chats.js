// A conversation is a tree of messages. Editing a message or asking again adds a branch beside the old one; `heads` says which child of each
// message is shown. Plain data: what is here is what is stored and exported.

export function newChat(model) {
  const now = Date.now();
  return { id: newId(), title: "", named: false, model, created: now, updated: now, messages: {}, heads: {} };
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9)); // randomUUID is missing on plain-http addresses
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const ROOT = "root";

/** Adds a message below `parent` (null: at the beginning) and shows its branch. */
export function addMessage(chat, parent, role, text = "") {
  const order = Object.keys(chat.messages).length;
  const message = { id: newId(), parent, role, text, order, at: Date.now() };
  chat.messages[message.id] = message;
  chat.heads[parent ?? ROOT] = message.id;
  chat.updated = message.at;
  if (!chat.title && role === "user") chat.title = titleOf(text);
  return message;
}

export function titleOf(text) {
  const line = text.trim().split("\n").find((one) => one.trim()) ?? "";
  const short = line.trim().slice(0, 64);
  return short.length < line.trim().length ? `${short.replace(/\s+\S*$/, "")}…` : short || "Conversation";
}

/** The messages that are shown, first to last. */
export function shownMessages(chat) {
  const messages = [];
  let head = chat.heads[ROOT];
  while (head && chat.messages[head]) {
    messages.push(chat.messages[head]);
    head = chat.heads[head];
  }
  return messages;
}

/** A message and its alternatives, in the order they were made. */
export function alternatives(chat, message) {
  return Object.values(chat.messages)
    .filter((other) => other.parent === message.parent)
    .sort((a, b) => a.order - b.order);
}

export function showAlternative(chat, message) {
  chat.heads[message.parent ?? ROOT] = message.id;
}

/** The way from the beginning to a message, itself included. */
export function pathTo(chat, message) {
  const path = [];
  for (let at = message; at; at = chat.messages[at.parent]) path.unshift(at);
  return path;
}

/**
 * What is sent: the text of the way to a message, without answers that came to nothing. Questions that were left without an answer go
 * with the next one, since many models' templates refuse two turns of one speaker.
 */
export function requestMessages(path, systemPrompt) {
  const said = [];
  for (const { role, text } of path) {
    if (role !== "user" && !text) continue;
    const before = said.at(-1);
    if (before?.role === role) before.content += `\n\n${text}`;
    else said.push({ role, content: text });
  }
  return systemPrompt.trim() ? [{ role: "system", content: systemPrompt }, ...said] : said;
}
