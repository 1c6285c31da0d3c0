// What stands around every view: name, navigation, theme, help, keys.

import { el, link } from "./dom.js";

const THEMES = ["system", "light", "dark"];

function storedTheme() {
  try {
    const kept = localStorage.getItem("posteer-theme");
    return THEMES.includes(kept) ? kept : "system";
  } catch {
    return "system"; // a browser that keeps nothing for files
  }
}

export function applyTheme(theme = storedTheme()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  return theme;
}

function themeSwitch() {
  const choose = (event) => {
    applyTheme(event.target.value);
    try {
      localStorage.setItem("posteer-theme", event.target.value);
    } catch {
      // then it is for this visit
    }
  };
  const now = applyTheme();
  return el(
    "label", { class: "theme" }, el("span", { class: "unseen" }, "Theme"),
    el("select", { onchange: choose, id: "theme" }, THEMES.map((name) => el("option", { value: name, selected: name === now }, { system: "System theme", light: "Light", dark: "Dark" }[name]))),
  );
}

function helpDialog(terms, keys) {
  const dialog = el(
    "dialog", { id: "help", "aria-labelledby": "help-title" },
    el("h2", { id: "help-title" }, "Keys and words"),
    el("table", { class: "keys" }, el("tbody", {}, [...keys, ["?", "this help"]].map(([key, text]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, text))))),
    el("dl", {}, terms.map(([word, text]) => [el("dt", {}, word), el("dd", {}, text)])),
    el("form", { method: "dialog" }, el("button", {}, "Close")),
  );
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close();
  });
  return dialog;
}

// The page's frame: { header, main, select(view), filters }.
export function pageFrame({ name, kind, tabs, terms, keys, role = "search", more = null }) {
  const dialog = helpDialog(terms, keys);
  const items = tabs.map(([view, label]) => [view, link(`#/${view}`, label)]);
  const nav = el("nav", { "aria-label": "Views" }, el("ul", {}, items.map(([, item]) => el("li", {}, item))));
  const help = el("button", { type: "button", class: "quiet", onclick: () => dialog.showModal() }, "Help");
  const header = el("header", {}, el("div", { class: "name" }, el("strong", {}, name), el("span", {}, kind)), nav, el("div", { class: "right" }, more, themeSwitch(), help));
  const filters = el("div", { class: "filters", role, "aria-label": role === "search" ? null : "What is asked" });
  const main = el("main", { id: "main", tabindex: -1 });
  const skip = el("a", { class: "skip", href: "#main" }, "Skip to content");
  skip.addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  document.getElementById("page").replaceChildren(skip, header, filters, main, dialog);
  return {
    main, filters, dialog,
    select(view, hrefOf) {
      for (const [own, item] of items) {
        item.setAttribute("href", hrefOf(own));
        if (own === view) item.setAttribute("aria-current", "page");
        else item.removeAttribute("aria-current");
      }
    },
  };
}

function typing(target) {
  return target.matches && target.matches("input, textarea, select");
}

export function listenToKeys({ dialog, up }) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const search = document.getElementById("search");
    if (event.key === "Escape") {
      const open = document.querySelector("details.tools[open]");
      if (open) open.open = false;
      else if (typing(event.target)) event.target.blur();
      else up();
    } else if (event.key === "/" && !typing(event.target) && search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "?" && !typing(event.target)) {
      event.preventDefault();
      dialog.showModal();
    }
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.tools[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
}
