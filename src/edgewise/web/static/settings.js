// What a person has chosen, kept in localStorage. `theme.js` reads the same entry before the page is painted.

import { icon } from "./dom.js";

const ENTRY = "edgewise.settings";

export const DEFAULTS = Object.freeze({
  theme: "system",
  key: "",
  model: "",
  systemPrompt: "",
  temperature: null, // null: the server's own
  maxTokens: null,
  think: false,
  web: false,
});

export function readSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem(ENTRY) ?? "{}");
    const known = Object.entries(kept).filter(([name, value]) => name in DEFAULTS && fits(DEFAULTS[name], value));
    return { ...DEFAULTS, ...Object.fromEntries(known) };
  } catch {
    return { ...DEFAULTS }; // closed or garbled storage
  }
}

function fits(usual, value) {
  return usual === null ? value === null || Number.isFinite(value) : typeof value === typeof usual;
}

export function writeSettings(settings) {
  try {
    localStorage.setItem(ENTRY, JSON.stringify(settings));
  } catch {
    // closed storage: they last as long as the page
  }
}

/** Puts a theme on; `button` switches to the other one. */
export function showTheme(theme, button) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const dark = isDark(theme);
  button.replaceChildren(icon(dark ? "sun" : "moon"));
  button.setAttribute("aria-label", dark ? "Switch to light" : "Switch to dark");
  button.title = dark ? "Light" : "Dark";
}

export function isDark(theme) {
  return theme === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
}
