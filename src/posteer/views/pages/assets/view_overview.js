// What was run, whether the paper's claims hold on it, what it took.

import { el, link } from "./dom.js";
import { count, duration, listed, plural, short, fixed, signed } from "./format.js";
import { makeHash } from "./routing.js";
import { dataTable, tools } from "./tables.js";
import { MARKS } from "./heatmap.js";
import { summary } from "./data.js";

function tile(value, label, href = null, sign = null) {
  const inside = [el("span", { class: "big" }, sign && el("span", { class: "sign", "aria-hidden": "true" }, `${sign} `), value), el("span", {}, label)];
  return el("li", {}, href ? link(href, inside) : el("div", {}, inside));
}

function headed(name, title, table, options = {}) {
  return el("section", {}, el("div", { class: "bar" }, el("h2", {}, title), tools(name, () => table)), options.note && el("p", { class: "note" }, options.note), dataTable(table, { caption: title, ...options }));
}

function claimSign(claim) {
  const [kind, sign, text] = claim.holds ? ["yes", "\u2713", "holds"] : claim.explained ? ["", "\u2248", "differs, with a reason"] : ["no", "\u2715", "does not hold"];
  return el("span", { class: kind, "aria-label": text, title: text, role: "img" }, sign);
}

function claimsTable(claims) {
  return {
    columns: [
      { label: "holds", value: (c) => (c.holds ? "holds" : "does not hold"), node: claimSign },
      { label: "claim", value: (c) => c.statement, head: true },
      { label: "published", value: (c) => c.published },
      { label: "ours", value: (c) => c.ours },
      { label: "verdict", value: (c) => c.verdict },
    ],
    rows: claims,
  };
}

// What matches, and what would if methods were taken for each other.
function agreementTable(rows) {
  const between = (values) => (values.length ? `${Math.min(...values)} to ${Math.max(...values)}` : "");
  return {
    columns: [
      { label: "figure", value: (r) => r.statistic, head: true },
      { label: "cells", value: (r) => r.of, number: true },
      { label: "within three errors", value: (r) => r.within, number: true },
      { label: "with methods swapped", value: (r) => between(r.swapped), number: true },
      { label: "printed the same", value: (r) => r.same, number: true },
      { label: "nearer to its own method", value: (r) => r.nearer, text: (r) => (r.nearer_of ? `${r.nearer} of ${r.nearer_of}` : ""), number: true },
    ],
    rows: rows.filter((r) => r.of),
  };
}

// A row for each model, length and method; a column for each figure.
function methodsTable(counts) {
  const rows = new Map();
  for (const one of counts) {
    const key = `${one.model} ${one.length} ${one.method}`;
    if (!rows.has(key)) rows.set(key, { model: one.model, length: one.length, method: one.method, by: {} });
    rows.get(key).by[one.statistic] = one;
  }
  const figures = [...new Set(counts.map((one) => one.statistic))].map((name) => ({
    label: name, number: true,
    value: (r) => r.by[name]?.within ?? null,
    text: (r) => (r.by[name] ? `${r.by[name].within} of ${r.by[name].of} (${r.by[name].same})` : ""),
  }));
  return {
    columns: [
      { label: "model", value: (r) => r.model, head: true },
      { label: "m", value: (r) => r.length, number: true },
      { label: "method", value: (r) => r.method },
      ...figures,
    ],
    rows: [...rows.values()],
  };
}

function outsideTable(rows) {
  return {
    columns: [
      { label: "utility", class: "keep", value: (r) => r.target, head: true },
      { label: "model", class: "keep", value: (r) => r.model },
      { label: "m", value: (r) => r.length, number: true },
      { label: "method", class: "keep", value: (r) => r.method },
      { label: "published", value: (r) => r.published, text: (r) => fixed(r.published, 2), number: true },
      { label: "ours", value: (r) => r.ours, text: (r) => fixed(r.ours, 2), number: true },
      { label: "in standard errors", value: (r) => r.errors, text: (r) => signed(r.errors, 1), number: true },
      { label: "reason that was tested", value: (r) => r.reason },
    ],
    rows,
  };
}

function costTable(sweep) {
  const methods = sweep.values("method");
  const rows = methods.map((method, code) => {
    const runs = [];
    for (let i = 0; i < sweep.size; i += 1) if (sweep.code("method", i) === code) runs.push(i);
    const mean = (pick) => {
      const values = runs.map(pick).filter((v) => v !== null);
      return values.length ? summary(values).mean : null;
    };
    const sum = (pick) => runs.map(pick).reduce((total, v) => total + (v || 0), 0);
    return {
      method, runs: runs.length,
      seconds: mean((i) => sweep.figure("seconds", i)), total: sum((i) => sweep.figure("seconds", i)),
      forward: mean((i) => sweep.figure("forward_tokens", i)), backward: mean((i) => sweep.figure("backward_tokens", i)),
      bank: mean((i) => sweep.figure("bank_tokens", i)),
    };
  });
  const figure = (label, name, text) => ({ label, value: (r) => r[name], text: (r) => text(r[name]), number: true });
  return {
    columns: [
      { label: "method", value: (r) => sweep.heading(r.method), head: true },
      figure("runs", "runs", count), figure("seconds a run", "seconds", duration), figure("seconds in all", "total", duration),
      figure("forward tokens a run", "forward", short), figure("backward tokens a run", "backward", short), figure("bank tokens, shared", "bank", short),
    ],
    rows,
  };
}

function ran(sweep) {
  const { sessions, total } = sweep.data;
  const share = total && total !== sweep.size ? ` of ${count(total)}` : "";
  const rows = [
    ["runs", `${count(sweep.size)}${share}`],
    ["models", listed(sweep.values("model"))],
    ["utilities", `${count(sweep.values("utility").length)}: ${listed(sweep.families())}`],
    ["methods", listed(sweep.values("method").map((m) => sweep.heading(m)))],
    ["prompt lengths", listed(sweep.values("length"))],
    ["horizons", listed(sweep.values("horizon"))],
    ["seeds", count(sweep.values("seed").length)],
    ["device", listed(sweep.values("device"))],
  ];
  if (sessions) rows.push(["ran", `${sessions.began.slice(0, 16).replace("T", " ")} to ${sessions.ended.slice(0, 16).replace("T", " ")} UTC, ${plural(sessions.processes, "process", "processes")}`]);
  return el("dl", { class: "facts" }, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function timeNote(sweep) {
  const { sessions, paper } = sweep.data;
  const own = sessions ? `All processes together took ${duration(sessions.process_seconds)}. ` : "";
  if (!paper.published_seconds) return own || null;
  return `${own}The paper says about ${duration(paper.published_seconds)} for its whole sweep on one H100; it prints no tokens.`;
}

export function overview(sweep) {
  const { paper, notes } = sweep.data;
  const states = { failed: 0, diverged: 0, untrusted: 0 };
  for (const cell of sweep.cells) for (const state of Object.keys(states)) states[state] += cell.count(state);
  const tiles = [tile(count(sweep.size), "runs", "#/runs"), tile(count(sweep.cells.length), "cells", "#/cells")];
  for (const [state, { sign, name }] of Object.entries(MARKS)) tiles.push(tile(count(states[state]), `runs ${name}`, states[state] ? makeHash("runs", { state }) : null, sign));
  if (paper.claims && paper.claims.length) {
    const hold = paper.claims.filter((claim) => claim.holds).length;
    tiles.push(tile(`${hold} of ${paper.claims.length}`, "claims hold"));
  }
  const cellsOfJ = paper.agreement && paper.agreement.find((row) => row.statistic === "J");
  if (cellsOfJ) tiles.push(tile(`${cellsOfJ.within} of ${cellsOfJ.of}`, "cells of J within three errors"));
  return el(
    "div", {},
    el("h1", { tabindex: -1 }, sweep.data.name),
    notes.map((note) => el("p", { class: "warn" }, note)),
    el("ul", { class: "tiles" }, tiles),
    el("section", {}, el("h2", {}, "What was run"), ran(sweep)),
    paper.why && el("p", { class: "note" }, paper.why),
    paper.claims && paper.claims.length > 0 && headed("claims", "Claims of the paper", claimsTable(paper.claims), { wide: true, note: "Each is a check on figures, made on the published tables and on these runs alike. \u2713 holds; \u2248 differs for a reason that was tested; \u2715 does not hold." }),
    headed("cost", "Time and tokens", costTable(sweep), { note: timeNote(sweep) }),
    paper.agreement && headed("agreement", "Agreement with the published cells", agreementTable(paper.agreement), { note: "Within three standard errors of the difference, rounding of the printed figure included; beside it what comparing with other methods' figures would give. Last, where the paper has two methods three errors apart: how often ours is nearer to its own method's figure than to the other's (by chance, half)." }),
    paper.by_method && headed("agreement-by-method", "Agreement by method", methodsTable(paper.by_method), { note: "Cells within three errors; in brackets those printed the same." }),
    paper.outside && paper.outside.length > 0 && headed("outside", "Cells of J more than three errors off", outsideTable(paper.outside), { most: 20, wide: true }),
  );
}
