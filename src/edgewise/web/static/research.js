// What the Web switch did for an answer: searches and pages read while it was made, and the numbered sources it cites.

import { h, icon } from "./dom.js";
import { link, safeAddress } from "./inline.js";

/** The list of steps, or null. */
export function researchView(steps) {
  return steps.length ? h("ul", { class: "steps", "aria-label": "Web research" }, ...steps.map(stepView)) : null;
}

function stepView(step) {
  if (step.type === "search") return searchView(step);
  if (step.type === "read") return h("li", {}, icon("page"), h("span", {}, "Read ", addressLink(step.url, step.title || step.url)));
  return h("li", { class: "note" }, icon("search"), h("span", { text: step.text ?? "" }));
}

function searchView({ query, results = [] }) {
  const count = `${results.length} ${results.length === 1 ? "result" : "results"}`;
  const rows = results.map((one) => h("li", {}, h("span", { class: "number", text: one.n }), addressLink(one.url, one.title || one.url), h("span", { class: "domain", text: one.domain })));
  const summary = h("summary", {}, "Searched for ", h("q", { text: query }), h("span", { class: "count", text: count }));
  return h("li", {}, icon("search"), results.length ? h("details", {}, summary, h("ol", {}, ...rows)) : h("span", {}, "Searched for ", h("q", { text: query }), h("span", { class: "count", text: count })));
}

function addressLink(url, text) {
  const address = safeAddress(url);
  return address ? link(address, text) : h("span", { text });
}

/** The sources at an answer's end: those it cites, or all where it cites none. */
export function sourcesView(sources) {
  const cited = sources.filter((source) => source.cited);
  const shown = cited.length ? cited : sources;
  if (!shown.length) return null;
  const rows = shown.map((source) => h("li", { value: source.n }, h("span", { class: "number", text: source.n }), addressLink(source.url, source.title || source.url), h("span", { class: "domain", text: source.domain })));
  return h("section", { class: "sources", "aria-label": "Sources" }, h("h4", { text: cited.length ? "Sources" : "Found on the way" }), h("ol", {}, ...rows));
}

/** For `inline`: a citation's number -> its link, or null where there is no such source. */
export function citer(sources) {
  if (!sources.length) return null;
  const byNumber = new Map(sources.map((source) => [source.n, source]));
  return (number) => {
    const source = byNumber.get(number);
    const address = source && safeAddress(source.url);
    if (!address) return null;
    const node = link(address, String(number));
    node.className = "cite";
    node.setAttribute("aria-label", `Source ${number}: ${source.title || source.domain}`);
    return node;
  };
}
