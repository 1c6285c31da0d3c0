// A tour for someone who has not read the paper, with the pictures themselves.

import { el, link } from "./dom.js";
import { dotRows } from "./charts.js";
import { count, fixed, significant } from "./format.js";
import { liveFigure } from "./tables.js";
import { posterior } from "./data.js";
import { clouds, latentsTable } from "./latent_pictures.js";
import { matrixOf, tokenStrip } from "./prompt_pictures.js";
import { lawEditor } from "./drag_pad.js";
import { newest, send } from "./explorer_api.js";
import { weightsOf } from "./live_runs.js";
import { tokenButtons } from "./view_steer.js";

const MODEL = "urn";
const LENGTH = 6;
const CELL = { model: MODEL, utility: { kind: "dyck" }, horizon: 4 };
const STEPS = [["Prior", prior], ["Posterior", after], ["Tilt", tilt], ["Snapping", snapping]];

function p(...parts) {
  return el("p", { class: "text" }, ...parts);
}

// The cloud of a step, by any weights.
function cloudFigure(app, title) {
  const figure = liveFigure("tour-latents", title);
  return { node: figure.node, show(weights, note) {
    const latents = app.latentsOf(MODEL);
    figure.show(clouds(latents, weights, app.left())[0].chart, () => latentsTable(latents, weights), note);
  } };
}

function equal(app) {
  const { shown } = app.latentsOf(MODEL);
  return new Array(shown).fill(1 / shown);
}

export async function tourView(app) {
  await app.learn(MODEL);
  const at = Math.min(Math.max(app.step, 1), STEPS.length);
  const [, draw] = STEPS[at - 1];
  const step = draw(app);
  const hash = (i) => `#/tour?step=${i}`;
  const steps = el("ol", { class: "steps" }, STEPS.map(([name], i) => el("li", {}, el("a", { href: hash(i + 1), "aria-current": i + 1 === at ? "step" : null }, `${i + 1}. ${name}`))));
  const move = el("p", { class: "acts" }, at > 1 && link(hash(at - 1), "\u2190 Back"), at < STEPS.length ? el("a", { class: "button", id: "next", href: hash(at + 1) }, "Next \u2192") : [link("#/watch", "Search for yourself"), link("#/steer", "Steer by hand")]);
  const node = el(
    "div", { class: "tour" },
    el("h1", { tabindex: -1 }, `${at}. ${step.title}`), el("nav", { "aria-label": "Tour" }, steps),
    el("div", { class: "stage" }, el("div", {}, step.picture), el("div", {}, step.text, move)),
  );
  return { node, update: step.update || (() => {}) };
}

function prior(app) {
  const cloud = cloudFigure(app, "All that the model thinks possible");
  const latents = app.latentsOf(MODEL);
  const sample = el("p", { class: "lead mono", id: "sample" });
  cloud.show(equal(app), "Each dot is one process: across, how often a 1 follows a 0; upwards, how often a 1 follows a 1.");
  const drawn = () => {
    const l = Math.floor(Math.random() * latents.shown);
    const law = (c) => latents.kernels[l * 4 + c * 2 + 1];
    const tokens = [Math.random() < 0.5 ? 1 : 0];
    while (tokens.length < 40) tokens.push(Math.random() < law(tokens.at(-1)) ? 1 : 0);
    cloud.show(equal(app).map((_, i) => (i === l ? 1 : 0)), "The process that wrote the text.");
    sample.textContent = `${tokens.join("")}: 1 follows 0 in ${fixed(100 * law(0), 0)} %, 1 follows 1 in ${fixed(100 * law(1), 0)} %`;
  };
  return {
    title: "Prior: a model that does not know which process it is in",
    picture: cloud.node,
    text: [
      p("This model has read very many texts of two tokens, 0 and 1. Each text was written by some simple process of its own, and no one told the model which. So before it reads anything it must think many processes possible. That is its prior."),
      p("The dots are read off the model itself: let it write long texts, and count in each how often a 1 follows a 0 and a 1 follows a 1."),
      p(el("button", { type: "button", id: "draw", onclick: drawn }, "Let one of them write")), sample,
    ],
  };
}

function after(app) {
  const cloud = cloudFigure(app, "What is left of it after the prompt");
  const told = el("p", { class: "lead", id: "told", role: "status" });
  const next = liveFigure("tour-next", "Next token");
  const tokens = [0, 0, 0, 1, 1, 1];
  const ask = newest((prompt) => send("/api/steer", { ...CELL, prompt }), (answer) => {
    told.textContent = `After this prompt the model writes balanced brackets in ${fixed(100 * answer.J, 1)} % of cases: J is ${fixed(answer.J, 4)}.`;
    const rows = answer.tree[0].map((share, v) => ({ label: String(v), shape: "circle", value: share }));
    next.show(dotRows(rows, { width: Math.min(app.right(), 480), xLabel: "probability", from: 0, to: 1, names: 40, label: "next token" }), () => ({ columns: [{ label: "token", value: (r) => r.label, head: true }, { label: "probability", value: (r) => r.value, number: true }], rows }));
  }, (error) => {
    told.textContent = error.message;
  });
  const show = () => {
    const { weights, ess } = posterior(app.latentsOf(MODEL), tokens);
    cloud.show(weights, `Discs are as large as a process is likely after the prompt; some ${count(ess)} of ${count(weights.length)} still count.`);
    ask([...tokens]);
  };
  const strip = tokenButtons({ tokens, vocab: 2, names: [], brackets: true, onchange: show });
  show();
  return {
    title: "Posterior: a prompt is evidence",
    picture: cloud.node,
    text: [
      p("When the model reads a prompt, processes that would hardly write it lose weight. What is left is the posterior, and the model goes on as the processes that are left would. A prompt steers the model by what it makes it believe."),
      p("Press the tokens. Try to make the model write balanced brackets, where 0 is \u201c(\u201d and 1 is \u201c)\u201d: it should believe that 0 and 1 take turns."),
      strip.node, told, next.node,
    ],
  };
}

function tilt(app) {
  const cloud = cloudFigure(app, "Latents, tilted");
  const told = el("p", { class: "lead", id: "told", role: "status" });
  const ask = newest((kernel) => send("/api/tilt", { ...CELL, length: LENGTH, kernel }), (answer) => {
    cloud.show(weightsOf(answer.weights), "Weighed by how likely each process makes the prompts of this law.");
    told.textContent = `The weighed latents expect a utility of ${significant(answer.surrogate)}: that is the surrogate. ${fixed(100 * answer.ess, 0)} % of them still count.`;
  }, (error) => {
    told.textContent = error.message;
  });
  const rows = [[0.5, 0.5], [0.5, 0.5]];
  cloud.show(equal(app), "");
  ask(rows);
  return {
    title: "Tilt: a law of prompts can be moved a little at a time",
    picture: cloud.node,
    text: [
      p("There are very many prompts, and no small step leads from one to the next. So take a law that prompts could be drawn from, a prompt kernel: how likely a 1 follows a 0, and a 1 follows a 1. It weighs the latents by how likely each would write its prompts. That weighing is the tilt."),
      p("Drag the point. The surrogate is what the weighed latents expect of what follows; no model is asked. A search climbs it by its slope. Where is it highest?"),
      lawEditor(rows, (table) => ask(table.map((row) => [...row])), { name: "tour", label: "Prompt kernel: drag the point" }), told,
    ],
  };
}

function snapping(app) {
  const cloud = cloudFigure(app, "Latents along the ascent");
  const kernel = liveFigure("tour-kernel", "Prompt kernel");
  const found = el("div", { id: "snapped" });
  const told = el("p", { class: "lead", id: "told", role: "status" });
  const button = el("button", { type: "button", class: "main", id: "ascend" }, "Ascend");
  let run = null;
  cloud.show(equal(app), "The prior.");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      run = app.watch(await send("/api/runs", { ...CELL, length: LENGTH, method: "ppt-rb", seed: 0, beside: false }));
    } catch (error) {
      told.textContent = error.message;
      button.disabled = false;
    }
  });
  const update = () => {
    if (!run) return;
    const frame = run.frames.at(-1);
    if (frame && !run.result) {
      cloud.show(frame.weights, `Step ${count(frame.step)}.`);
      told.textContent = `Step ${count(frame.step)}: the surrogate is ${significant(frame.surrogate)}.`;
    }
    if (frame) {
      const drawn = matrixOf("Prompt kernel", frame.kernel, { vocab: 2, order: 1, text: (c, v) => fixed(frame.kernel[c][v], 2) });
      kernel.show(drawn.chart, () => drawn.table, "The law of the next prompt token after each token.");
    }
    if (run.candidates) {
      const { prompts, values } = run.candidates;
      found.replaceChildren(el("h3", {}, "Hard prompts near the kernel, by what the latents expect of them"), el("ol", { class: "candidates" }, prompts.slice(0, 5).map((prompt, i) => el("li", {}, el("span", { class: "figure" }, significant(values[i], 4)), tokenStrip(prompt, false)))));
    }
    if (run.result) {
      cloud.show(posterior(app.latentsOf(MODEL), run.result.prompt).weights, "After the hard prompt: the posterior.");
      told.textContent = `Snapped to ${run.result.prompt.join("")}. On the model itself J is ${fixed(run.result.expected_utility, 4)}, rank ${count(run.result.rank)} of 64 prompts.`;
    }
    if (run.error) told.textContent = run.error;
  };
  return {
    title: "Snapping: from the law back to one prompt",
    picture: cloud.node,
    text: [
      p("The ascent moves the kernel uphill on the surrogate. Its end is a law, and a model reads tokens: so hard prompts whose transitions are nearest to the law are made, each is scored by the latents, and the best one is taken. Only then is the model asked how good it is."),
      button, told, found, kernel.node,
    ],
    update,
  };
}
