// A search as it goes: latents re-weighed, the prompt kernel, curves, candidates, what came of it.

import { el, tell } from "./dom.js";
import { SERIES, SHAPES } from "./colours.js";
import { axis, dotRows, frame, legendOf, mark, polyline } from "./charts.js";
import { count, duration, fixed, significant } from "./format.js";
import { liveFigure } from "./tables.js";
import { posterior, transitions } from "./data.js";
import { clouds, latentsTable } from "./latent_pictures.js";
import { matrixOf, tokenStrip } from "./prompt_pictures.js";
import { send } from "./explorer_api.js";
import { cellOf } from "./explorer_setup.js";

const STATES = { running: "at work", done: "done", failed: "failed", stopped: "stopped", lost: "the server is gone" };
const NAMES = { gcg: "GCG, on the model itself", coordinate: "coordinates, on the model itself", "ppt-rb": "PPT-RB, the paper's method", "ppt-rb-analytic": "PPT-RB (A), the paper's" };

export function hueOf(run) {
  return SERIES[run.order % SERIES.length];
}

function shapeOf(run) {
  return SHAPES[run.order % SHAPES.length];
}

export function watchView(app) {
  const start = el("button", { type: "button", class: "main", id: "run" }, "Run");
  const halt = el("button", { type: "button", id: "stop", disabled: true }, "Stop");
  const beside = el("input", { type: "checkbox", id: "beside", checked: true });
  const told = el("p", { class: "lead", id: "told", role: "status" });
  const wrong = el("p", { class: "warn", id: "wrong", role: "alert", hidden: true });
  const list = el("ul", { class: "chips", "aria-label": "Runs" });
  const scrub = el("input", { type: "range", min: 0, max: 0, step: 1, value: 0, id: "scrub" });
  const scrubbing = el("label", { class: "slide", hidden: true }, el("span", {}, "Step shown"), scrub, el("output", {}));
  const found = el("section", { id: "found", hidden: true });
  const pictures = picturesOf();
  let at = null; // the frame that is shown: null is the latest

  start.addEventListener("click", async () => {
    wrong.hidden = true;
    try {
      const facts = await send("/api/runs", { ...cellOf(app.state, app.facts), length: Number(app.state.length), method: app.state.method, seed: Number(app.state.seed), beside: beside.checked });
      at = null;
      app.watch(facts);
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
    }
  });
  halt.addEventListener("click", () => {
    if (app.selected) send(`/api/runs/${app.selected.facts.id}/stop`, {}).catch((error) => tell(error.message));
  });
  scrub.addEventListener("input", () => {
    at = Number(scrub.value) >= Number(scrub.max) ? null : Number(scrub.value);
    update();
  });

  function chip(run) {
    const current = run === app.selected;
    const pick = el("button", { type: "button", class: "chip", "aria-pressed": current ? "true" : "false", onclick: () => {
      app.selected = run;
      at = null;
      update();
    } }, el("span", { class: "swatch", fillStyle: hueOf(run), "aria-hidden": "true" }), `${run.label}: ${STATES[run.state]}`);
    const overlay = el("input", { type: "checkbox", checked: run.shown, onchange: (event) => {
      run.shown = event.target.checked;
      update();
    } });
    return el("li", {}, pick, el("label", { class: "tick" }, overlay, "overlay"));
  }

  function update() {
    const run = app.selected;
    list.replaceChildren(...app.runs.map(chip));
    halt.disabled = !run || run.state !== "running";
    told.textContent = run ? stateOf(run) : "Pick what to search for above, then press Run and watch.";
    if (run && run.error) {
      wrong.textContent = run.error;
      wrong.hidden = false;
    } else if (run) wrong.hidden = true;
    const steps = run ? run.frames.length + (run.prompt && run.frames.length ? 1 : 0) : 0;
    scrubbing.hidden = steps < 2;
    scrub.max = Math.max(steps - 1, 0);
    const place = at === null ? steps - 1 : Math.min(at, steps - 1);
    if (at === null) scrub.value = place;
    scrubbing.querySelector("output").textContent = !run || !steps ? "" : place < run.frames.length ? count(run.frames[place].step) : "snapped";
    pictures.draw(app, run, place);
    drawFound(found, run, app);
  }

  const node = el(
    "div", {},
    el("h1", { tabindex: -1 }, "Search and watch"),
    el("div", { class: "acts" }, start, halt, el("label", { class: "tick" }, beside, "then GCG and the paper's PPT-RB, to compare")),
    wrong, told, list,
    el("div", { class: "stage" }, el("div", {}, scrubbing, pictures.cloud), el("div", {}, found, el("div", { class: "pair" }, pictures.rest))),
  );
  update();
  return { node, update };
}

function stateOf(run) {
  if (run.state === "running") {
    const last = run.frames.at(-1);
    const stage = run.progress ? `${run.progress.what}, ${count(run.progress.done)} of at most ${count(run.progress.most)}. ` : "Getting ready. ";
    const ascent = last ? `Step ${count(last.step)}: surrogate ${significant(last.surrogate)}, effective sample size ${fixed(100 * last.ess, 1)} %. ` : "";
    const best = run.candidates ? `${count(run.candidates.tried)} ${run.candidates.snapped ? "prompts near the kernel" : "candidates"} tried, best estimate ${significant(run.candidates.values[0])}.` : "";
    return `${stage}${ascent}${best}`;
  }
  if (!run.result || run.result.status === "failed") return run.state === "stopped" ? "Stopped. Nothing of it is kept." : STATES[run.state];
  const { expected_utility: value, rank, optimum, seconds, warnings } = run.result;
  const place = rank === null ? "" : `, rank ${count(rank)} among all prompts of this length`;
  const most = optimum === null ? "" : `; the best possible is ${fixed(optimum, 4)}`;
  return `Found in ${duration(seconds)}: J is ${fixed(value, 4)} on the model${place}${most}.${warnings && warnings.length ? " Look at its warnings in the report." : ""}`;
}

// Pictures of one run at one step, and curves of all that are overlaid.
function picturesOf() {
  const cloud = [0, 1, 2, 3].map((i) => liveFigure(`latents-${i + 1}`, i ? `Latents, part ${i + 1}` : "Latents, weighed"));
  const kernel = liveFigure("kernel", "Prompt kernel");
  const surrogate = liveFigure("surrogate", "Surrogate along the ascent");
  const ess = liveFigure("ess", "Effective sample size");
  const search = liveFigure("search", "Best estimate of the search");
  const candidates = liveFigure("candidates", "Candidates", { drawn: false });
  return {
    cloud: cloud.map((one) => one.node),
    rest: [surrogate, ess, search, kernel, candidates].map((one) => one.node),
    draw(app, run, place) {
      const width = Math.min(app.right(), 340);
      drawCloud(cloud, app, run, place, app.left());
      drawKernel(kernel, run, place);
      const ascents = app.runs.filter((one) => (one.shown || one === run) && one.frames.length);
      drawCurves(surrogate, ascents, (one) => one.frames.map((f) => [f.step, f.surrogate]), "step", "surrogate", width);
      drawCurves(ess, ascents, (one) => one.frames.map((f) => [f.step, f.ess]), "step", "ESS/L", width, 0);
      const searches = app.runs.filter((one) => (one.shown || one === run) && one.searched.length > 1);
      drawCurves(search, searches, (one) => one.searched, "prompts tried", "best estimate", width);
      drawCandidates(candidates, run, app);
    },
  };
}

function drawCloud(figures, app, run, place, width) {
  const frameOf = run ? run.frames[place] : null;
  const own = run && run.latents ? run.latents : app.latentsOf(run ? run.facts.model : app.state.model);
  let [weights, note] = [null, ""];
  if (own && own.kernels) {
    if (frameOf && run.latents) [weights, note] = [frameOf.weights, `Weighed by the prompt kernel at step ${count(frameOf.step)}.`];
    else if (run && run.prompt) [weights, note] = [posterior(own, run.prompt).weights, "Weighed by the best prompt so far: the posterior."];
    else [weights, note] = [new Array(own.shown).fill(1 / own.shown), "Before any prompt: the prior. Each dot is a process that the model thinks possible."];
  }
  const drawn = weights ? clouds(own, weights, width) : [];
  figures.forEach((figure, i) => figure.show(drawn[i] ? drawn[i].chart : null, () => latentsTable(own, weights), i ? "" : note));
}

function drawKernel(figure, run, place) {
  const at = run && run.frames[place];
  let [table, note, text] = [null, "", null];
  if (at && at.kernel) [table, note] = [at.kernel, "The law of the next prompt token after each context."];
  else if (run && run.prompt && run.frames.some((one) => one.kernel)) {
    const like = run.frames.find((one) => one.kernel).kernel;
    const order = Math.round(Math.log(like.length) / Math.log(like[0].length));
    const counts = transitions(run.prompt, like[0].length, order);
    table = counts.map((row) => row.map((n) => n / Math.max(1, row.reduce((a, b) => a + b, 0))));
    [note, text] = ["Snapped: transitions of the hard prompt.", (c, v) => String(counts[c][v])];
  }
  if (!table) {
    figure.show(null, null);
    return;
  }
  const vocab = table[0].length;
  const order = Math.round(Math.log(table.length) / Math.log(vocab));
  const drawn = matrixOf("Prompt kernel", table, { vocab, order, text: text || ((c, v) => fixed(table[c][v], 2)) });
  figure.show(drawn.chart, () => drawn.table, note);
}

function drawCurves(figure, runs, pointsOf, xLabel, yLabel, width, from = null) {
  const all = runs.map((run) => [run, pointsOf(run).filter(([, y]) => y !== null)]).filter(([, points]) => points.length > 1);
  if (!all.length) {
    figure.show(null, null);
    return;
  }
  const xs = all.flatMap(([, points]) => points.map(([x]) => x));
  const plot = frame({ width, height: 230, x: axis(xs, { log: Math.max(...xs) > 300, pad: 0.02 }), y: axis(all.flatMap(([, points]) => points.map(([, y]) => y)), { from, pad: 0.08 }), xLabel, yLabel, label: `${yLabel} of ${all.length} runs` });
  for (const [run, points] of all) {
    const placed = points.map(([x, y]) => [plot.x(x), plot.y(y)]);
    plot.root.append(polyline(placed, hueOf(run)), mark(shapeOf(run), ...placed.at(-1), 4, hueOf(run), run.label));
  }
  const chart = el("div", {}, plot.root, all.length > 1 && legendOf(all.map(([run]) => [run.label, shapeOf(run), hueOf(run)]), width));
  const table = () => ({ columns: [{ label: "run", value: (r) => r[0], head: true }, { label: xLabel, value: (r) => r[1], number: true }, { label: yLabel, value: (r) => r[2], text: (r) => significant(r[2], 5), number: true }], rows: all.flatMap(([run, points]) => points.map(([x, y]) => [run.label, x, y])) });
  figure.show(all.length > 1 ? chart : plot.root, table);
}

function drawCandidates(figure, run, app) {
  const told = run && run.candidates;
  if (!told) {
    figure.show(null, null);
    return;
  }
  const most = Math.min(told.prompts.length, 10);
  const strips = told.prompts.slice(0, most).map((prompt, i) => el("li", {}, el("span", { class: "figure" }, significant(told.values[i], 4)), stripOf(prompt, run, app)));
  const chart = el("ol", { class: "candidates" }, strips);
  const table = () => ({ columns: [{ label: "prompt", value: (r) => r[0].join(" "), head: true }, { label: "estimate", value: (r) => r[1], text: (r) => significant(r[1], 5), number: true }], rows: told.prompts.map((prompt, i) => [prompt, told.values[i]]) });
  figure.show(chart, table, told.snapped ? `${count(told.tried)} hard prompts near the kernel; the best by the latents' estimate is the answer.` : `The best of ${count(told.tried)} that were tried, by the search's own estimate.`);
}

function stripOf(prompt, run, app) {
  const facts = app.known.get(run.facts.model) ?? { vocab: 0, names: [] };
  return tokenStrip(prompt, run.facts.utility === "dyck" && facts.vocab === 2 && !facts.names.length, facts.names);
}

function drawFound(section, run, app) {
  const result = run && run.result;
  section.hidden = !result || !result.prompt;
  if (section.hidden) return;
  const rows = [{ label: `${run.facts.method}, this run`, shape: "circle", value: result.expected_utility, error: result.standard_error, own: true }];
  for (const other of run.beside) if (other.expected_utility !== null) rows.push({ label: NAMES[other.method] || other.method, shape: "square", value: other.expected_utility, error: other.standard_error });
  const cell = (one) => ["model", "utility", "length", "horizon"].map((name) => one.facts[name]).join(" ");
  const others = app.runs.filter((one) => one !== run && one.shown && one.result?.prompt && cell(one) === cell(run));
  for (const one of others) rows.push({ label: `${one.facts.method}, seed ${one.facts.seed}`, shape: "diamond", value: one.result.expected_utility, error: one.result.standard_error });
  for (const one of result.published || []) if (["gcg", "ppt-rb"].includes(one.method)) rows.push({ label: `${one.method} as published`, shape: "ring", value: one.value, error: one.error });
  if (result.optimum !== null) rows.push({ label: "best of all prompts", shape: "wedge", value: result.optimum });
  const chart = dotRows(rows, { width: Math.min(app.right(), 720), xLabel: "J on the model", label: `J ${fixed(result.expected_utility, 4)} beside others` });
  const table = { columns: [{ label: "prompt of", value: (r) => r.label, head: true }, { label: "J", value: (r) => r.value, text: (r) => fixed(r.value, 5), number: true }], rows };
  const refused = run.beside.filter((other) => other.status === "failed").map((other) => `${other.method}: ${other.error}`);
  const figure = liveFigure("beside", "How good it is on the model, beside others");
  figure.show(chart, () => table, refused.join(" "));
  section.replaceChildren(el("div", { class: "bar" }, el("h2", {}, "Hard prompt"), el("button", { type: "button", onclick: () => app.steer(run) }, "Steer it by hand")), stripOf(result.prompt, run, app), figure.node);
}
