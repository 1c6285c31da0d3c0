// The report's page: reads its data, then shows the view that the address names.

import { el } from "./dom.js";
import { go, makeHash, parseHash, replaceHash } from "./routing.js";
import { applyTheme, listenToKeys, pageFrame } from "./chrome.js";
import { any, drawFilters } from "./filters.js";
import { STATISTICS, Sweep } from "./data.js";
import { MARKS } from "./heatmap.js";
import { overview } from "./view_overview.js";
import { cellsView } from "./view_cells.js";
import { cellView } from "./view_cell.js";
import { runView } from "./view_run.js";
import { compareView, costView } from "./view_compare.js";
import { runsView } from "./view_runs.js";

const TABS = [["overview", "Overview"], ["cells", "Tables"], ["compare", "Compare"], ["cost", "Cost"], ["runs", "Runs"]];
const SHARED = ["model", "length", "family", "method", "state", "search"];
const KEYS = [
  ["/", "search"],
  ["arrows", "move between cells of a heat map"],
  ["Enter", "open a cell or a run"],
  ["Esc", "leave the search, or go up: run, cell, tables"],
];
const TERMS = [
  ["J, expected utility", "How good a prompt is: the mean utility of what the model writes after it."],
  ["rank", "The prompt's place by J among all prompts of its length; 1 is the best."],
  ["m, length", "Tokens of the prompt."],
  ["surrogate", "What a search believes J to be, from latents alone. Held-out: the same on latents it was not tuned to."],
  ["ESS", "Effective sample size: how many of the latents still count once they are weighed, as a share."],
  ["k-hat", "How heavy the tail of the weights is. Above 0.7 a weighted mean cannot be trusted."],
  ["latent", "One law that the model holds possible; its prompt-dependent weights are the posterior."],
  ["sym-0.1, tau-0.2, dir-4", "Targets of the reverse cross-entropy: symmetric, of one probability, drawn at random."],
];

function filtersOf(sweep, view, query) {
  const choice = (name, label, options) => ({ name, label, options });
  const shared = [
    choice("model", "Model", any(sweep.values("model"))),
    choice("length", "Length", any(sweep.values("length"))),
    choice("family", "Utilities", any(sweep.families())),
    choice("method", "Method", any(sweep.values("method"), "all", (method) => sweep.heading(method))),
    choice("state", "Only with", any(Object.keys(MARKS), "any state", (state) => MARKS[state].name)),
  ].filter(({ options, name }) => options.length > 2 || name === "state");
  const methods = sweep.values("method").map((method) => [method, sweep.heading(method)]);
  const fixed = (name, label, options) => ({ name, label, options, fixed: true });
  const statistic = fixed("statistic", "Figure", Object.entries(STATISTICS).map(([name, { short }]) => [name === "J" ? "" : name, short]));
  if (view === "cells") return [statistic, ...(sweep.published ? [fixed("show", "Show", [["", "ours"], ["published", "published"], ["difference", "difference"]])] : []), ...shared];
  if (view === "compare") return [fixed("a", "Method", methods), fixed("b", "against", methods), statistic, ...shared.filter(({ name }) => name !== "method")];
  if (view === "cost") return [fixed("scale", "Height", [["", "J lacking"], ["J", "J"]]), fixed("bank", "Bank", [["", "shared"], ["none", "not counted"], ["whole", "counted whole"]]), ...shared];
  return shared;
}

function defaulted(sweep, view, query) {
  if (view !== "compare") return query;
  const methods = sweep.values("method");
  return { ...query, a: query.a || methods[0], b: query.b || methods[1] || methods[0] };
}

function start() {
  const began = performance.now();
  applyTheme();
  const sweep = new Sweep(JSON.parse(document.getElementById("data").textContent));
  const page = pageFrame({ name: sweep.data.name, kind: "posteer report", tabs: TABS, terms: TERMS, keys: KEYS });
  const scrolls = new Map();
  let last = null;

  function draw(route, width) {
    const change = (changes) => go(makeHash(route.view, { ...route.query, ...changes }, route.path));
    switch (route.view) {
      case "cells": return cellsView(sweep, route.query, change);
      case "cell": return cellView(sweep, route.query, width);
      case "run": return runView(sweep, route.path[0], width);
      case "compare": return compareView(sweep, defaulted(sweep, "compare", route.query), width);
      case "cost": return costView(sweep, route.query, width);
      case "runs": return runsView(sweep, route.query, change);
      case "overview": return overview(sweep);
      default: return el("div", {}, el("h1", { tabindex: -1 }, "No such view"), el("p", {}, el("a", { href: "#/overview" }, "Overview")));
    }
  }

  function render() {
    const from = performance.now();
    const route = parseHash(location.hash);
    const width = Math.max(280, page.main.clientWidth - 4);
    const choices = ["cells", "compare", "cost", "runs"].includes(route.view) ? filtersOf(sweep, route.view, route.query) : null;
    page.filters.hidden = !choices;
    if (choices) drawFilters(page.filters, choices, defaulted(sweep, route.view, route.query), onfilter);
    else page.filters.replaceChildren();
    const content = draw(route, width);
    page.main.replaceChildren(content);
    const heading = content.querySelector("h1");
    document.title = `${heading.textContent} \u2013 ${sweep.data.name}`;
    const kept = Object.fromEntries(Object.entries(route.query).filter(([name]) => SHARED.includes(name) && choices));
    page.select(route.view === "cell" || route.view === "run" ? "cells" : route.view, (view) => makeHash(view, view === "overview" ? {} : kept));
    const place = `${route.view} ${route.path}${choices ? "" : location.hash}`;
    if (last !== null && last !== place) {
      window.scrollTo(0, scrolls.get(location.hash) ?? 0);
      heading.focus({ preventScroll: true });
    }
    last = place;
    performance.measure("render", { start: from, end: performance.now() });
  }

  function onfilter(name, value, typed = false) {
    const route = parseHash(location.hash);
    const query = name === null ? Object.fromEntries(Object.entries(route.query).filter(([own]) => !SHARED.includes(own))) : { ...route.query, [name]: value };
    const hash = makeHash(route.view, query, route.path);
    if (typed) {
      replaceHash(hash);
      render();
    } else go(hash);
  }

  function up() {
    const route = parseHash(location.hash);
    if (route.view === "run") {
      const i = sweep.byRun.get(route.path[0]);
      go(i === undefined ? "#/runs" : makeHash("cell", sweep.cellOf(i).query()));
    } else if (route.view === "cell") go(makeHash("cells", { model: route.query.model }));
    else if (route.query.search) onfilter("search", "");
  }

  window.addEventListener("hashchange", render);
  window.addEventListener("scroll", () => scrolls.set(location.hash, window.scrollY), { passive: true });
  let wide = window.innerWidth;
  window.addEventListener("resize", () => {
    if (Math.abs(window.innerWidth - wide) > 20) {
      wide = window.innerWidth;
      render();
    }
  });
  listenToKeys({ dialog: page.dialog, up });
  render();
  performance.measure("ready", { start: began, end: performance.now() });
  document.documentElement.dataset.ready = "yes";
}

start();
