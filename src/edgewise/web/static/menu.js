// A menu below a button: arrows move, Enter and click choose, Escape and a click elsewhere close.

import { h, icon } from "./dom.js";

let closeOpen = null;

/** Whether a menu was open and is closed now. */
export function closeMenu() {
  const close = closeOpen;
  close?.();
  return Boolean(close);
}

/** `entries`: [{label, detail, state, checked, run}]; `checked` given makes a choice of one. */
export function openMenu(button, label, entries) {
  if (closeMenu()) return;
  const items = entries.map((entry) => itemOf(entry));
  const menu = h("div", { class: "menu", role: "menu", "aria-label": label, tabindex: "-1" }, ...items);
  const near = button.getBoundingClientRect();
  document.body.append(menu);
  menu.style.top = `${near.bottom + 6}px`;
  menu.style.left = `${Math.max(8, Math.min(near.left, innerWidth - menu.offsetWidth - 8))}px`;
  button.setAttribute("aria-expanded", "true");

  const close = () => {
    closeOpen = null;
    if (menu.contains(document.activeElement)) button.focus();
    menu.remove();
    button.setAttribute("aria-expanded", "false");
    removeEventListener("pointerdown", outside, true);
    removeEventListener("resize", close);
  };
  const outside = (event) => {
    if (!menu.contains(event.target) && !button.contains(event.target)) close();
  };
  menu.addEventListener("keydown", (event) => onKey(event, items, button, close));
  menu.addEventListener("click", () => close(), true);
  addEventListener("pointerdown", outside, true);
  addEventListener("resize", close);
  closeOpen = close;
  (items.find((item) => item.getAttribute("aria-checked") === "true") ?? items[0])?.focus();
}

function itemOf({ label, detail, state, checked, run }) {
  const props = { type: "button", class: "menu-item", role: checked === undefined ? "menuitem" : "menuitemradio", tabindex: "-1" };
  if (checked !== undefined) props["aria-checked"] = String(checked);
  return h("button", { ...props, on: { click: run } },
    state ? h("span", { class: `dot ${state}` }) : null,
    h("span", { class: "menu-text" }, h("span", { text: label }), detail ? h("small", { text: detail }) : null),
    checked ? icon("check") : null);
}

function onKey(event, items, button, close) {
  const at = items.indexOf(document.activeElement);
  const moves = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 };
  if (event.key in moves) {
    items[moves[event.key] % items.length]?.focus();
  } else if (event.key === "Escape") {
    close();
  } else if (event.key === "Tab") {
    close();
    return;
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}
