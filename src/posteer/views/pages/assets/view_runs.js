// Runs as rows: of a cell, or of all that the filters keep.

import { el } from "./dom.js";
import { count, duration, fixed, plural, short } from "./format.js";
import { makeHash } from "./routing.js";
import { dataTable, tools } from "./tables.js";
import { MARKS } from "./heatmap.js";

export function stateNode(state) {
  const own = MARKS[state];
  return own ? el("span", {}, el("span", { class: "sign", "aria-hidden": "true" }, own.sign), ` ${own.name}`) : state;
}

export function runsTable(sweep, runs, alone = false) {
  const figure = (label, name, digits) => ({ label, value: (i) => sweep.figure(name, i), text: (i) => fixed(sweep.figure(name, i), digits), number: true });
  const places = [
    { label: "model", value: (i) => sweep.text("model", i) },
    { label: "utility", value: (i) => sweep.text("utility", i), text: (i) => sweep.label(sweep.text("utility", i)) },
    { label: "m", value: (i) => sweep.text("length", i), number: true },
    { label: "method", value: (i) => sweep.text("method", i), text: (i) => sweep.heading(sweep.text("method", i)) },
  ];
  const all = [
    { label: "run", value: (i) => sweep.data.runs[i], text: (i) => sweep.data.runs[i].slice(0, 8), href: (i) => makeHash("run", {}, [sweep.data.runs[i]]), head: true, class: "mono" },
    ...(alone ? [] : places),
    { label: "seed", value: (i) => sweep.text("seed", i), number: true },
    { label: "state", value: (i) => sweep.state(i), node: (i) => stateNode(sweep.state(i)) },
    figure("J", "expected_utility", 4),
    figure("rank", "rank", 0),
    figure("surrogate", "surrogate", 4),
    figure("held-out", "held_out_surrogate", 4),
    figure("ESS/L", "ess_fraction", 3),
    figure("k-hat", "pareto_k", 2),
    { label: "tokens", value: (i) => sweep.tokens(i), text: (i) => short(sweep.tokens(i)), number: true },
    { label: "seconds", value: (i) => sweep.figure("seconds", i), text: (i) => duration(sweep.figure("seconds", i)), number: true },
    { label: "prompt", value: (i) => sweep.text("prompt", i), class: "mono prompt" },
  ];
  const kept = ["rank", "surrogate", "held-out", "ESS/L", "k-hat"];
  const empty = (column) => kept.includes(column.label) && runs.every((i) => column.value(i) === null);
  return { columns: all.filter((column) => !empty(column)), rows: runs };
}

export function runsView(sweep, query, change) {
  const runs = sweep.filtered(query).flatMap((cell) => cell.runs).filter((i) => !query.state || sweep.state(i) === query.state);
  const table = runsTable(sweep, runs);
  const state = { sort: query.sort || null, direction: query.direction === "descending" ? -1 : 1 };
  const onsort = ({ sort, direction }) => change({ sort: sort ?? "", direction: sort ? (direction < 0 ? "descending" : "ascending") : "" });
  return el(
    "div", {},
    el("h1", { tabindex: -1 }, plural(runs.length, "run")),
    el("div", { class: "bar" }, el("p", { class: "note" }, `of ${count(sweep.size)}; a run opens what it found.`), tools("runs", () => table)),
    runs.length ? dataTable(table, { caption: "runs", most: 60, state, onsort }) : el("p", { class: "empty" }, "No run is left by these filters."),
  );
}
