// What is shown: one row of choices, kept while views change, read from and written to the address.

import { el } from "./dom.js";

function chooser(name, label, options, value, change) {
  const known = options.some(([own]) => String(own) === String(value ?? ""));
  const entries = known ? options : [...options, [value, value]];
  const select = el("select", { id: `filter-${name}`, onchange: (event) => change(name, event.target.value) }, entries.map(([own, text]) => el("option", { value: own, selected: String(own) === String(value ?? "") }, text)));
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

// `choices`: [{ name, label, options: [[value, text]] }]. The search keeps its place and its text.
export function drawFilters(holder, choices, query, change) {
  const old = holder.querySelector("#search");
  const focused = holder.contains(document.activeElement) ? document.activeElement.id : "";
  const typed = focused === "search";
  const search = old || el("input", { id: "search", type: "search", placeholder: "Search  /", "aria-label": "Search utilities, methods, models", autocomplete: "off", spellcheck: "false" });
  if (!old) search.addEventListener("input", () => search.changed(search.value));
  search.changed = (text) => change("search", text, true);
  if (!typed) search.value = query.search || "";
  const used = choices.some(({ name, fixed }) => !fixed && query[name]) || query.search;
  const clear = el("button", { type: "button", class: "quiet", disabled: !used, onclick: () => change(null, null) }, "Clear");
  const own = choices.map(({ name, label, options }) => chooser(name, label, options, query[name], change));
  if (old && old.parentElement === holder) {
    while (search.nextSibling) search.nextSibling.remove();
    holder.append(...own, clear);
  } else holder.replaceChildren(search, ...own, clear);
  if (focused && !typed) document.getElementById(focused)?.focus();
}

export function any(values, text = "all", show = String) {
  return [["", text], ...values.map((value) => [String(value), show(value)])];
}
