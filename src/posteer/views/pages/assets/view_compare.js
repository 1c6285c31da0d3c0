// Two methods on the same cells and seeds; and utility against what it cost.

import { el, svg } from "./dom.js";
import { SERIES, SHAPES } from "./colours.js";
import { axis, frame, legendOf, mark } from "./charts.js";
import { count, fixed, plural, short, signed } from "./format.js";
import { makeHash } from "./routing.js";
import { dataTable, figure, tools } from "./tables.js";
import { STATISTICS, summary } from "./data.js";
import { statisticText } from "./view_cells.js";

const SAME = 1e-3;

// Cells that both methods have, with their differences by seed.
export function pairsOf(sweep, cells, a, b, statistic) {
  const place = (cell) => [cell.model, cell.horizon, cell.budget, cell.utility, cell.length].join("\u0000");
  const others = new Map(cells.filter((cell) => cell.method === b).map((cell) => [place(cell), cell]));
  const pairs = [];
  for (const cell of cells.filter((one) => one.method === a)) {
    const other = others.get(place(cell));
    if (!other) continue;
    const seeds = new Map(other.runs.map((i) => [sweep.text("seed", i), i]));
    const gaps = [];
    for (const i of cell.runs) {
      const j = seeds.get(sweep.text("seed", i));
      if (j === undefined) continue;
      const [x, y] = [sweep.statistic(statistic, i), sweep.statistic(statistic, j)];
      if (x !== null && y !== null) gaps.push(x - y);
    }
    if (!gaps.length) continue;
    const { mean, error, n } = summary(gaps);
    pairs.push({ cell, other, mean, error, n, a: cell.figure(statistic).mean, b: other.figure(statistic).mean });
  }
  return pairs;
}

function pairedChart(pairs, names, statistic, width) {
  const { log, short: label } = STATISTICS[statistic];
  const values = pairs.flatMap((pair) => [pair.a, pair.b]);
  const both = axis(values, { log: log && values.every((v) => v > 0), trim: true });
  const size = Math.min(width, 372);
  const plot = frame({ width: size, height: size - 10, x: both, y: both, xLabel: `${label}, ${names[1]}`, yLabel: `${label}, ${names[0]}`, label: `${label} of ${names[0]} against ${names[1]} in ${pairs.length} cells` });
  plot.root.append(svg("line", { class: "ruled", x1: plot.x(both.low), y1: plot.y(both.low), x2: plot.x(both.high), y2: plot.y(both.high) }));
  for (const pair of pairs) {
    const title = `${pair.cell.model}, ${pair.cell.label}, m = ${pair.cell.length}: ${statisticText(statistic, pair.a)} against ${statisticText(statistic, pair.b)}`;
    plot.root.append(svg("a", { href: makeHash("cell", pair.cell.query()), "aria-label": title }, mark("circle", plot.x(pair.b), plot.y(pair.a), 4.5, SERIES[0], title)));
  }
  plot.root.setAttribute("role", "group");
  return [plot.root, both.beyond ? "Cells far out are drawn at the edge." : null];
}

export function compareView(sweep, query, width) {
  const methods = sweep.values("method");
  const [a, b] = [methods.includes(query.a) ? query.a : methods[0], methods.includes(query.b) ? query.b : methods[1] ?? methods[0]];
  const statistic = query.statistic in STATISTICS ? query.statistic : "J";
  const { short: label, better, digits } = STATISTICS[statistic];
  const title = `${sweep.heading(a)} against ${sweep.heading(b)}`;
  if (methods.length < 2) return el("div", {}, el("h1", { tabindex: -1 }, "Compare"), el("p", { class: "empty" }, "This sweep has one method."));
  const pairs = pairsOf(sweep, sweep.filtered({ ...query, method: "" }), a, b, statistic);
  if (!pairs.length) return el("div", {}, el("h1", { tabindex: -1 }, title), el("p", { class: "empty" }, "No cell has both, with seeds in common and this figure."));
  const all = summary(pairs.map((pair) => pair.mean));
  const turn = better === "high" ? 1 : -1;
  const wins = pairs.filter((pair) => pair.mean * turn > SAME).length;
  const losses = pairs.filter((pair) => pair.mean * turn < -SAME).length;
  const places = Math.max(digits, 3);
  const families = [...new Set(pairs.map((pair) => pair.cell.family))];
  const half = all.error === null ? "" : ` \u00b1 ${fixed(1.96 * all.error, places)}`;
  const table = {
    columns: [
      { label: "utility", value: (p) => p.cell.utility, text: (p) => p.cell.label, href: (p) => makeHash("cell", p.cell.query()), head: true },
      { label: "model", value: (p) => p.cell.model },
      { label: "m", value: (p) => p.cell.length, number: true },
      { label: sweep.heading(a), value: (p) => p.a, text: (p) => statisticText(statistic, p.a), number: true },
      { label: sweep.heading(b), value: (p) => p.b, text: (p) => statisticText(statistic, p.b), number: true },
      { label: "mean difference", value: (p) => p.mean, text: (p) => signed(p.mean, places), number: true },
      { label: "standard error", value: (p) => p.error, text: (p) => fixed(p.error, places), number: true },
      { label: "seeds", value: (p) => p.n, number: true },
    ],
    rows: pairs,
  };
  const charts = families.map((family) => {
    const own = pairs.filter((pair) => pair.cell.family === family);
    const [chart, note] = pairedChart(own, [sweep.heading(a), sweep.heading(b)], statistic, width);
    return figure(`compare-${family.replace(/[^\w.-]+/g, "-")}`, family, chart, { ...table, rows: own }, note);
  });
  return el(
    "div", {},
    el("h1", { tabindex: -1 }, title),
    el("p", { class: "lead" }, `${label} is better for ${sweep.heading(a)} in ${count(wins)} of ${plural(pairs.length, "cell")}, the same in ${count(pairs.length - wins - losses)}, worse in ${count(losses)}. Mean difference over cells ${signed(all.mean, places)}${half}.`),
    el("p", { class: "note" }, `Paired by seed within each cell. Same: within ${SAME}. The interval is 1.96 standard errors over cells, as if they were independent.`),
    el("h2", {}, `Above the line ${sweep.heading(a)} is higher`),
    el("div", { class: "pair" }, charts),
    el("section", {}, el("div", { class: "bar" }, el("h2", {}, "Cells"), tools("paired", () => table)), dataTable(table, { caption: "paired differences by cell", most: 60 })),
  );
}

// What a cell lacks to the best that is known there: the best prompt, or the best run of the sweep.
function shortfalls(sweep, cells) {
  const best = new Map();
  const place = (cell) => [cell.model, cell.horizon, cell.utility, cell.length].join("\u0000");
  for (const cell of sweep.cells) {
    for (const i of cell.runs) {
      for (const value of [sweep.figure("optimum", i), sweep.figure("expected_utility", i)]) {
        if (value !== null && value !== undefined && !(best.get(place(cell)) >= value)) best.set(place(cell), value);
      }
    }
  }
  return (cell) => best.get(place(cell)) - cell.figure("J").mean;
}

// Below this nothing is told apart on a logarithmic axis.
const LEAST = 1e-4;

function costChart(cells, { spent, value, raw, looks, width, label }) {
  const height = raw ? value : (cell) => Math.max(value(cell), LEAST);
  const y = raw ? axis(cells.map(height), { trim: true }) : axis(cells.map(height), { log: true });
  const plot = frame({ width, height: 340, x: axis(cells.map(spent), { log: true }), y, xLabel: "model tokens a run (logarithmic)", yLabel: raw ? "J" : "J lacking (logarithmic)", label: `${label}: ${cells.length} cells` });
  for (const cell of cells) {
    const told = `${cell.heading}, ${cell.model}, ${cell.label}, m = ${cell.length}: ${raw ? "J" : "lacks"} ${fixed(value(cell), 3)}, ${short(spent(cell))} tokens`;
    const [shape, colour] = looks.get(cell.method);
    plot.root.append(svg("a", { href: makeHash("cell", cell.query()), "aria-label": told }, mark(shape, plot.x(spent(cell)), plot.y(height(cell)), 4.2, colour, told)));
  }
  plot.root.setAttribute("role", "group");
  return plot.root;
}

export function costView(sweep, query, width) {
  const cells = sweep.filtered(query).filter((cell) => cell.figure("J") && cell.figure("tokens"));
  const raw = query.scale === "J";
  const utilities = new Map(sweep.values("model").map((model) => [model, new Set(sweep.cells.filter((cell) => cell.model === model).map((cell) => cell.utility)).size]));
  const bank = (cell) => summary(cell.runs.map((i) => sweep.figure("bank_tokens", i) || 0)).mean;
  const share = { whole: () => 1, none: () => 0 }[query.bank] ?? ((cell) => 1 / utilities.get(cell.model));
  const spent = (cell) => Math.max(1, cell.figure("tokens").mean + bank(cell) * share(cell));
  const lacks = shortfalls(sweep, cells);
  const value = (cell) => (raw ? cell.figure("J").mean : lacks(cell));
  const methods = sweep.values("method").filter((method) => cells.some((cell) => cell.method === method));
  const title = raw ? "J against model tokens" : "What is lacking to the best, against model tokens";
  const table = {
    columns: [
      { label: "method", value: (c) => c.method, text: (c) => c.heading, head: true },
      { label: "model", value: (c) => c.model },
      { label: "utility", value: (c) => c.utility, text: (c) => c.label, href: (c) => makeHash("cell", c.query()) },
      { label: "m", value: (c) => c.length, number: true },
      { label: "model tokens a run", value: spent, text: (c) => short(spent(c)), number: true },
      { label: "J", value: (c) => c.figure("J").mean, text: (c) => fixed(c.figure("J").mean, 4), number: true },
      { label: "lacking", value: lacks, text: (c) => fixed(lacks(c), 4), number: true },
    ],
    rows: cells,
  };
  if (!cells.length) return el("div", {}, el("h1", { tabindex: -1 }, "Cost"), el("p", { class: "empty" }, "No cell is left by these filters."));
  const families = [...new Set(cells.map((cell) => cell.family))];
  const looks = new Map(methods.map((method, at) => [method, [SHAPES[at % SHAPES.length], SERIES[at % SERIES.length]]]));
  const charts = families.map((family) => {
    const own = cells.filter((cell) => cell.family === family);
    const plot = costChart(own, { spent, value, raw, looks, width: Math.min(width, families.length > 2 ? 384 : families.length > 1 ? 560 : 860), label: `${title}, ${family}` });
    return figure(`cost-${family.replace(/[^\w.-]+/g, "-")}`, family, plot, { ...table, rows: own });
  });
  const rows = methods.map((method) => {
    const own = cells.filter((cell) => cell.method === method);
    return { method, n: own.length, tokens: summary(own.map(spent)).mean, J: summary(own.map((cell) => cell.figure("J").mean)).mean, lacks: summary(own.map(lacks)).mean };
  });
  const means = {
    columns: [
      { label: "method", value: (r) => sweep.heading(r.method), head: true },
      { label: "cells", value: (r) => r.n, number: true },
      { label: "model tokens a run", value: (r) => r.tokens, text: (r) => short(r.tokens), number: true },
      { label: "mean J", value: (r) => r.J, text: (r) => fixed(r.J, 4), number: true },
      { label: "mean lacking", value: (r) => r.lacks, text: (r) => fixed(r.lacks, 4), number: true },
    ],
    rows,
  };
  const how = { whole: "A bank's whole cost is counted in every run.", none: "A bank's cost is not counted." }[query.bank] ?? "A bank's cost is shared by the utilities of its model.";
  return el(
    "div", {},
    el("h1", { tabindex: -1 }, title),
    el("p", { class: "note" }, `One mark a cell, means over seeds. ${how} ${raw ? "" : "The best is the best of all prompts where all were tried, else the best run of this sweep there."} Runs that asked the model nothing stand at 1 token${raw ? "" : `, cells that lack less than ${LEAST} at ${LEAST}`}.`),
    el("div", { class: "legend" }, legendOf(methods.map((method) => [sweep.heading(method), ...looks.get(method)]), Math.min(width, 860))),
    el("div", { class: "pair" }, charts),
    el("section", {}, el("div", { class: "bar" }, el("h2", {}, "Methods"), tools("cost-by-method", () => means)), dataTable(means, { caption: "means by method" })),
  );
}
