// A run: the prompt it found, how good it is, what the search believed, and how it got there.

import { el, link } from "./dom.js";
import { SERIES } from "./colours.js";
import { axis, dotRows, frame, mark, polyline } from "./charts.js";
import { count, duration, fixed, quoted, short, significant } from "./format.js";
import { makeHash } from "./routing.js";
import { figure } from "./tables.js";
import { posterior, tokensOf, transitions } from "./data.js";
import { copy } from "./exports.js";
import { cellName, crumbs } from "./view_cell.js";
import { stateNode } from "./view_runs.js";
import { latentPanels } from "./latent_pictures.js";
import { matrixOf, tokenStrip } from "./prompt_pictures.js";

function commandOf(sweep, i) {
  const words = ["posteer", "elicit", "--model", sweep.text("model", i), "--utility", sweep.text("utility", i), "--length", sweep.text("length", i), "--horizon", sweep.text("horizon", i), "--method", sweep.text("method", i), "--seed", sweep.text("seed", i)];
  const budget = sweep.text("max_model_tokens", i);
  if (budget !== null) words.push("--max-model-tokens", budget);
  const bank = sweep.data.banks[sweep.text("model", i)];
  if (bank !== undefined && sweep.text("bank", i) !== null) words.push("--bank", bank);
  return words.concat("--rank").map((word) => quoted(String(word))).join(" ");
}

const BELIEFS = [
  ["surrogate", "surrogate, what the search climbed", "surrogate_standard_error", "diamond"],
  ["held_out_surrogate", "the same on held-out latents", "held_out_standard_error", "ring"],
  ["snapped_surrogate", "surrogate of the hard prompt", null, "square"],
  ["plain_surrogate", "plain weights, hard prompt", "plain_standard_error", "triangle"],
  ["expected_utility", "true J on the model", "standard_error", "circle"],
  ["optimum", "best of all prompts", null, "wedge"],
];

function beliefsChart(sweep, i, width) {
  const rows = BELIEFS.map(([name, label, error, shape]) => ({ label, shape, value: sweep.figure(name, i), error: error && sweep.figure(error, i), own: name === "expected_utility" })).filter((row) => row.value !== null && row.value !== undefined);
  const chart = rows.length > 1 && dotRows(rows, { width: Math.min(width, 820), xLabel: "utility; bars are two standard errors", label: `J ${fixed(sweep.figure("expected_utility", i), 4)} and what the search believed` });
  const table = { columns: [{ label: "figure", value: (r) => r.label, head: true }, { label: "value", value: (r) => r.value, text: (r) => fixed(r.value, 5), number: true }, { label: "standard error", value: (r) => r.error, text: (r) => fixed(r.error, 5), number: true }], rows };
  return chart ? figure("beliefs", "What the search believed, and what is so", chart, table) : null;
}

function matrix(name, title, table, { note, ...shape }) {
  const drawn = matrixOf(title, table, shape);
  return figure(name, title, drawn.chart, drawn.table, note);
}

function kernelFigures(sweep, i, tokens, latents) {
  const kernel = sweep.data.kernels[i];
  const found = [];
  if (kernel) {
    const vocab = kernel[0].length;
    const order = Math.round(Math.log(kernel.length) / Math.log(vocab));
    found.push(matrix("kernel", "Prompt kernel the ascent ended at", kernel, { vocab, order, text: (c, v) => fixed(kernel[c][v], 2), note: "The law of the next prompt token after each context; the hard prompt is snapped from it." }));
  }
  const vocab = latents && latents.vocab ? latents.vocab : Math.max(2, ...tokens.map((t) => t + 1));
  const order = latents && latents.order !== undefined && latents.kernels ? latents.order : 1;
  if (tokens.length > order && vocab ** (order + 1) <= 64) {
    const counts = transitions(tokens, vocab, order);
    const shares = counts.map((row) => {
      const sum = row.reduce((a, b) => a + b, 0);
      return row.map((n) => (sum ? n / sum : null));
    });
    const note = kernel ? null : "No prompt kernel is shown: searches have none, and records of earlier versions do not keep it.";
    found.push(matrix("transitions", "Transitions in the hard prompt", shares, { vocab, order, text: (c, v) => String(counts[c][v]), note }));
  }
  return found;
}

function curveFigures(sweep, i, width) {
  const curve = sweep.curve(i);
  if (!curve) return [el("p", { class: "note" }, "No steps are on this page for this run.")];
  const thin = curve.of > curve.steps.length ? `${curve.steps.length} of ${count(curve.of)} steps are drawn.` : null;
  const draw = (name, title, series, label, colour, from = null) => {
    const x = axis(curve.steps, { log: curve.of > 100, pad: 0.02 });
    const plot = frame({ width: Math.min(width, 520), height: 230, x, y: axis(series.filter((v) => v !== null), { from, pad: 0.08 }), xLabel: "step", yLabel: label, label: `${title} over ${curve.of} steps, from ${significant(series[0])} to ${significant(series.at(-1))}` });
    plot.root.append(polyline(series.map((v, at) => [plot.x(curve.steps[at]), v === null ? null : plot.y(v)]), colour));
    const last = series.length - 1;
    if (series[last] !== null) plot.root.append(mark("circle", plot.x(curve.steps[last]), plot.y(series[last]), 3.5, colour));
    const table = { columns: [{ label: "step", value: (r) => r[0], number: true, head: true }, { label, value: (r) => r[1], text: (r) => significant(r[1], 5), number: true }], rows: curve.steps.map((step, at) => [step, series[at]]) };
    return figure(name, title, plot.root, table, thin);
  };
  const { surrogate, ess, value, forward_tokens: forward, backward_tokens: backward } = curve.series;
  const found = [];
  if (surrogate) found.push(draw("ascent", "Surrogate along the ascent", surrogate, "surrogate", SERIES[0]));
  if (ess) found.push(draw("ess", "Effective sample size along the ascent", ess, "ESS/L", SERIES[2], 0));
  if (value && !surrogate) found.push(draw("search", "Best value of the search", value, "best J so far", SERIES[1]));
  if (forward && !surrogate) found.push(draw("spent", "Model tokens spent", forward.map((v, at) => v + (backward ? backward[at] : 0)), "tokens", SERIES[4], 0));
  return found.length ? found : [el("p", { class: "note" }, "This method records no steps.")];
}

function factsOf(sweep, i) {
  const figureOf = (name, text) => (sweep.figure(name, i) === null || sweep.figure(name, i) === undefined ? null : text(sweep.figure(name, i)));
  const withError = (name, error) => figureOf(name, (v) => `${fixed(v, 5)}${sweep.figure(error, i) ? ` \u00b1 ${fixed(sweep.figure(error, i), 5)}` : ""}`);
  const exact = sweep.figure("standard_error", i) === 0;
  return [
    ["state", stateNode(sweep.state(i))],
    ["error", sweep.text("error", i)],
    ["true J", figureOf("expected_utility", (v) => `${fixed(v, 6)}${exact ? " (exact)" : ` \u00b1 ${fixed(sweep.figure("standard_error", i), 6)}`}`)],
    ["rank", figureOf("rank", (v) => `${count(v)} among all prompts of this length`)],
    ["best prompt's J", figureOf("optimum", (v) => fixed(v, 6))],
    ["proven bound", figureOf("bound", (v) => fixed(v, 6))],
    ["surrogate", withError("surrogate", "surrogate_standard_error")],
    ["held-out surrogate", withError("held_out_surrogate", "held_out_standard_error")],
    ["surrogate of the hard prompt", figureOf("snapped_surrogate", (v) => fixed(v, 5))],
    ["ESS", figureOf("ess_fraction", (v) => `${fixed(100 * v, 1)} % of the latents`)],
    ["Pareto k-hat", figureOf("pareto_k", (v) => `${fixed(v, 2)}${sweep.isUntrusted(i) ? ", above 0.7: do not trust the surrogate" : ""}`)],
    ["chosen method", sweep.text("choice_method", i)],
    ["warnings", sweep.text("warnings", i)],
    ["steps", figureOf("steps", (v) => `${count(v)}${sweep.text("stop_reason", i) ? `, stopped: ${sweep.text("stop_reason", i)}` : ""}`)],
    ["model tokens", sweep.tokens(i) === null ? null : `${count(sweep.figure("forward_tokens", i))} forward, ${count(sweep.figure("backward_tokens", i))} backward${sweep.figure("bank_tokens", i) ? `; bank ${short(sweep.figure("bank_tokens", i))}, shared` : ""}`],
    ["seconds", figureOf("seconds", duration)],
    ["device", sweep.text("device", i)],
    ["source revision", sweep.text("revision", i)],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
}

export function runView(sweep, name, width) {
  const i = sweep.byRun.get(name) ?? [...sweep.byRun.entries()].find(([own]) => name && own.startsWith(name))?.[1];
  if (i === undefined) return el("div", {}, el("h1", { tabindex: -1 }, "No such run"), el("p", {}, "No run of this sweep has this name. ", link("#/runs", "All runs")));
  const cell = sweep.cellOf(i);
  const tokens = tokensOf(sweep.text("prompt", i));
  const best = tokensOf(sweep.text("best_prompt", i));
  const brackets = cell.utility === "dyck" && Math.max(...tokens, 0) < 2;
  const command = commandOf(sweep, i);
  const latents = sweep.latents(cell.model);
  const place = cell.runs.indexOf(i);
  const beside = (at, text) => (cell.runs[at] === undefined ? null : link(makeHash("run", {}, [sweep.data.runs[cell.runs[at]]]), text));
  return el(
    "div", {},
    crumbs(["Tables", makeHash("cells", { model: cell.model })], [cellName(cell), makeHash("cell", cell.query())], [`seed ${sweep.text("seed", i)}`, null]),
    el("h1", { tabindex: -1 }, `Seed ${sweep.text("seed", i)} `, el("span", { class: "after" }, cellName(cell))),
    el("p", { class: "beside" }, beside(place - 1, "\u2190 previous seed"), beside(place + 1, "next seed \u2192")),
    tokens.length > 0 && el("section", {}, el("h2", {}, "Hard prompt"), tokenStrip(tokens, brackets), best.length > 0 && best.join() !== tokens.join() && [el("h3", {}, "Best prompt of all"), tokenStrip(best, brackets)]),
    el("dl", { class: "facts" }, factsOf(sweep, i).map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", {}, value)))),
    beliefsChart(sweep, i, width),
    tokens.length > 0 && el("section", {}, el("h2", {}, "Latents after the prompt"), latentPanels(latents, tokens, posterior, width)),
    tokens.length > 0 && el("section", {}, el("h2", {}, "Prompt as a process"), el("div", { class: "pair" }, kernelFigures(sweep, i, tokens, latents))),
    el("section", {}, el("h2", {}, "Steps"), el("div", { class: "pair" }, curveFigures(sweep, i, width))),
    el("section", {}, el("h2", {}, "Run it again"), el("div", { class: "command" }, el("code", {}, command), el("button", { type: "button", onclick: () => copy(command, "command") }, "Copy")), el("p", { class: "note" }, "Alone a run is solved in a batch of one: last digits may differ.")),
  );
}
