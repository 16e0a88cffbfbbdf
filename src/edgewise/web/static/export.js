// Conversations as files: all of it as JSON, the branch that is shown as Markdown.

import { shownMessages } from "./chats.js";
import { h } from "./dom.js";
import { openMenu } from "./menu.js";

export function openExport(button, chat) {
  openMenu(button, "Export", [
    { label: "Markdown", detail: "The text, as it is shown", run: () => exportMarkdown(chat) },
    { label: "JSON", detail: "Everything, with all versions", run: () => exportJson(chat) },
  ]);
}

function exportJson(chat) {
  save(`${fileName(chat)}.json`, "application/json", JSON.stringify({ format: "edgewise-conversation", version: 1, ...chat }, null, 2));
}

export function exportAll(chats) {
  const day = new Date().toISOString().slice(0, 10);
  save(`edgewise-${day}.json`, "application/json", JSON.stringify({ format: "edgewise-conversations", version: 1, conversations: chats }, null, 2));
}

function exportMarkdown(chat) {
  save(`${fileName(chat)}.md`, "text/markdown", markdownOf(chat));
}

function markdownOf(chat) {
  const parts = [`# ${chat.title}`, `${new Date(chat.created).toISOString().slice(0, 16).replace("T", " ")} UTC`];
  for (const message of shownMessages(chat)) {
    parts.push(message.role === "user" ? "## You" : `## ${message.model ?? "Assistant"}`);
    if (message.reasoning) parts.push(quoted(`Thoughts:\n\n${message.reasoning.trim()}`));
    for (const call of message.calls ?? []) parts.push(`\`${call.name}\`\n\n\`\`\`json\n${call.arguments}\n\`\`\``);
    if (message.text) parts.push(message.text.trim());
    if (message.sources?.length) parts.push(message.sources.map((source) => `[${source.n}]: <${source.url}> ${source.title}`).join("  \n"));
    if (message.error) parts.push(quoted(message.error));
  }
  return `${parts.join("\n\n")}\n`;
}

const quoted = (text) => text.split("\n").map((line) => (line ? `> ${line}` : ">")).join("\n");

function fileName(chat) {
  const words = chat.title.toLowerCase().normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return words.slice(0, 60) || "conversation";
}

function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
