// Keys that work anywhere on the page.

import { openShortcuts } from "./dialogs.js";
import { byId } from "./dom.js";
import { closeMenu } from "./menu.js";

/** `does`: stop, newChat, toggleList, find, copyLast. */
export function listen(does) {
  const shifted = { KeyO: does.newChat, KeyS: does.toggleList, KeyK: does.find, Semicolon: does.copyLast };
  addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return; // it has its own
    const run = meant(event, shifted, does);
    if (!run) return;
    event.preventDefault();
    run();
  });
}

function meant(event, shifted, does) {
  const command = (event.ctrlKey || event.metaKey) && !event.altKey;
  if (event.key === "Escape") return () => closeMenu() || does.stop();
  if (command && event.shiftKey) return shifted[event.code];
  if (command) return event.key === "/" ? openShortcuts : null;
  return event.key === "/" && !event.target.closest("input, textarea, select") ? () => byId("prompt").focus() : null;
}
