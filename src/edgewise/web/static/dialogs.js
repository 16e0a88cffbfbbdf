// The dialogs: settings, keyboard shortcuts, and the one that asks for a key.

import { h, iconButton } from "./dom.js";

function dialog(title, ...children) {
  const node = h("dialog", { class: "dialog", "aria-label": title });
  const close = () => node.close();
  node.append(h("header", {}, h("h2", { text: title }), iconButton("close", "Close", close)), ...children);
  node.addEventListener("close", () => node.remove());
  node.addEventListener("pointerdown", (event) => event.target === node && close()); // the backdrop
  document.body.append(node);
  node.showModal();
  return node;
}

let numFields = 0;

function field(label, hint, control) {
  numFields += 1;
  control.id = `field-${numFields}`;
  if (hint) control.setAttribute("aria-describedby", `hint-${numFields}`);
  return h("div", { class: "field" }, h("label", { for: control.id, text: label }), control, hint ? h("small", { id: `hint-${numFields}`, text: hint }) : null);
}

function numberField(value, { min, max, step, placeholder }, change) {
  const control = h("input", { type: "number", min, max, step, placeholder, inputmode: "decimal" });
  control.value = value ?? "";
  control.addEventListener("change", () => {
    const given = control.value.trim() === "" ? null : Math.min(max, Math.max(min, Number(control.value)));
    control.value = given ?? "";
    change(given);
  });
  return control;
}

function keyField(value, change) {
  const control = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  control.value = value;
  control.addEventListener("change", () => change(control.value.trim()));
  return control;
}

/** `change(name, value)` at each choice; `actions`: exportAll, deleteAll. */
export function openSettings(settings, change, actions) {
  const themes = ["system", "light", "dark"].map((theme) => {
    const button = h("button", { type: "button", "aria-pressed": String(settings.theme === theme), text: theme[0].toUpperCase() + theme.slice(1) });
    button.addEventListener("click", () => {
      change("theme", theme);
      for (const other of themes) other.setAttribute("aria-pressed", String(other === button));
    });
    return button;
  });
  const prompt = h("textarea", { rows: "4", placeholder: "None" });
  prompt.value = settings.systemPrompt;
  prompt.addEventListener("change", () => change("systemPrompt", prompt.value));
  const remove = h("button", { type: "button", class: "quiet danger", text: "Delete all conversations" });
  remove.addEventListener("click", () => {
    if (remove.dataset.sure) {
      actions.deleteAll();
      node.close();
    }
    remove.dataset.sure = "yes";
    remove.textContent = "Delete them all for good";
  });
  const node = dialog("Settings",
    h("div", { class: "field" }, h("span", { class: "label", text: "Appearance" }), h("div", { class: "segments", role: "group", "aria-label": "Appearance" }, ...themes)),
    field("System prompt", "Comes before every conversation.", prompt),
    h("div", { class: "pair" },
      field("Temperature", "Empty: the model's own.", numberField(settings.temperature, { min: 0, max: 2, step: 0.1, placeholder: "Default" }, (value) => change("temperature", value))),
      field("Longest answer", "Tokens. Empty: no limit.", numberField(settings.maxTokens, { min: 1, max: 1_000_000, step: 1, placeholder: "No limit" }, (value) => change("maxTokens", value && Math.round(value))))),
    field("Key", "Sent to this server with every request, and kept in this browser.", keyField(settings.key, (value) => change("key", value))),
    h("footer", {}, h("button", { type: "button", class: "quiet", text: "Export all conversations", on: { click: actions.exportAll } }), remove));
  return node;
}

/** Asks for a key; `use(key)` says whether it was right. */
export function openInvite(use) {
  if (document.querySelector("dialog.invite")) return;
  const control = keyField("", () => {});
  const wrong = h("p", { class: "problem", role: "alert", hidden: true, text: "The server does not know this key." });
  const enter = async () => {
    const key = control.value.trim();
    if (!key) return;
    if (await use(key)) node.close();
    else wrong.hidden = false;
  };
  control.addEventListener("keydown", (event) => event.key === "Enter" && enter());
  const node = dialog("This server asks for a key",
    h("p", { text: "Whoever runs it can give you one: a line of letters that works like a password. It stays in this browser." }),
    field("Key", null, control),
    wrong,
    h("footer", {}, h("button", { type: "button", class: "primary", text: "Continue", on: { click: enter } })));
  node.classList.add("invite");
  control.focus();
}

const SHORTCUTS = [
  ["Enter", "Send"],
  ["Shift Enter", "New line"],
  ["Esc", "Stop the answer"],
  ["↑", "Edit the last message, in an empty field"],
  ["/", "Go to the message field"],
  ["Ctrl Shift O", "New conversation"],
  ["Ctrl Shift K", "Find a conversation"],
  ["Ctrl Shift S", "Show or hide the list"],
  ["Ctrl Shift ;", "Copy the last answer"],
  ["Ctrl /", "These shortcuts"],
];

export function openShortcuts() {
  const mac = /Mac|iPhone|iPad/.test(navigator.platform);
  const rows = SHORTCUTS.map(([keys, does]) => {
    const caps = keys.split(" ").map((key) => h("kbd", { text: mac && key === "Ctrl" ? "⌘" : key }));
    return h("div", {}, h("dt", {}, ...caps), h("dd", { text: does }));
  });
  return dialog("Keyboard", h("dl", { class: "shortcuts" }, ...rows));
}
