// Building DOM nodes. Nothing here, or anywhere on this page, turns text into HTML.

const SVG = "http://www.w3.org/2000/svg";

// Outlines on a 20 x 20 grid, drawn with the text's colour.
const ICONS = {
  menu: "M3.5 6h13M3.5 10h13M3.5 14h8",
  close: "M5 5l10 10M15 5L5 15",
  plus: "M10 4v12M4 10h12",
  edit: "M4 16l.7-3.2L13 4.5a1.4 1.4 0 0 1 2 0l.5.5a1.4 1.4 0 0 1 0 2L7.2 15.3 4 16zM11.6 5.9l2.5 2.5",
  trash: "M4 6h12M8 6V4.5h4V6M5.5 6l.7 10h7.6l.7-10M8.5 9v4.5M11.5 9v4.5",
  copy: "M7.5 7.5V4h8.5v8.5h-3.5M4 7.5h8.5V16H4z",
  check: "M4.5 10.5l3.6 3.6L15.5 6.5",
  again: "M15.5 8A6 6 0 1 0 16 11M15.8 4v4h-4",
  send: "M10 16V4.5M5 9.5l5-5 5 5",
  stop: "M6 6h8v8H6z",
  down: "M10 4v12M5 11l5 5 5-5",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  chevron: "M6 8l4 4 4-4",
  sun: "M10 6.8a3.2 3.2 0 1 1 0 6.4 3.2 3.2 0 0 1 0-6.4zM10 2.5v1.6M10 15.9v1.6M2.5 10h1.6M15.9 10h1.6M4.7 4.7l1.1 1.1M14.2 14.2l1.1 1.1M15.3 4.7l-1.1 1.1M5.8 14.2l-1.1 1.1",
  moon: "M15.8 11.6A6.3 6.3 0 0 1 8.4 4.2a6.3 6.3 0 1 0 7.4 7.4z",
  keyboard: "M3 5.5h14v9H3zM6 8.5h.01M9 8.5h.01M12 8.5h.01M14.5 8.5h.01M7 11.7h6",
  share: "M10 12.5V3.5M6.5 6.5L10 3l3.5 3.5M4 11.5V16h12v-4.5",
  search: "M9 4.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM12.3 12.3L16 16",
  page: "M5.5 3.5h6l3 3v10h-9zM11.5 3.5v3h3M8 10h4.5M8 13h4.5",
  globe: "M10 3.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM3.5 10h13M10 3.5c2 2 2.8 4.2 2.8 6.5s-.8 4.5-2.8 6.5c-2-2-2.8-4.2-2.8-6.5S8 5.5 10 3.5z",
  spark: "M10 3.5c.6 3.6 2.3 5.4 6.5 6.5-4.2 1.1-5.9 2.9-6.5 6.5-.6-3.6-2.3-5.4-6.5-6.5 4.2-1.1 5.9-2.9 6.5-6.5z",
  tool: "M12.5 4a3.5 3.5 0 0 0-3.3 4.8L4 14l2 2 5.2-5.2A3.5 3.5 0 0 0 15.8 7l-2 1.8-2-2L13.8 4.8A3.5 3.5 0 0 0 12.5 4z",
  settings: "M4 6h6M14 6h2M4 14h2M10 14h6M12 4.2v3.6M8 12.2v3.6",
};

/** An element. `props`: `class`, `text`, `on` (listeners by event), `data`, anything else an attribute; null and false leave it out. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button that shows an icon and says its name. */
export function iconButton(name, label, run, extra = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, on: { click: run }, ...extra }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Said by screen readers; seen by nobody. */
export function announce(text) {
  byId("status").textContent = text;
}

/** A short notice, with one thing to do about it if any. */
export function toast(text, action = null, label = "") {
  const node = h("div", { class: "toast" }, h("span", { text }));
  const close = () => node.remove();
  if (action) {
    node.append(h("button", { type: "button", class: "link", text: label, on: { click: () => (action(), close()) } }));
  }
  byId("toasts").append(node);
  setTimeout(close, action ? 8000 : 3500);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text); // pages of plain-http addresses have no clipboard API
  }
}

function copyBySelection(text) {
  const field = h("textarea", { class: "unseen", "aria-hidden": "true" });
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** A copy button that says that it has copied. `text` is called when pressed. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    await copyText(text());
    button.replaceChildren(icon("check"));
    announce("Copied");
    setTimeout(() => button.replaceChildren(icon("copy")), 1600);
  });
  return button;
}
