// A prompt in one's own hands: flip its tokens and see what the model makes of it, at once.

import { el, svg } from "./dom.js";
import { axis, dotRows, frame, mark } from "./charts.js";
import { count, fixed, significant } from "./format.js";
import { liveFigure } from "./tables.js";
import { posterior } from "./data.js";
import { clouds, latentsTable } from "./latent_pictures.js";
import { shadeOf } from "./prompt_pictures.js";
import { treePicture, treeTable } from "./tree_picture.js";
import { newest, send } from "./explorer_api.js";
import { cellOf } from "./explorer_setup.js";

// Tokens that are buttons: a click, or space, makes each the next one; arrows move between them.
export function tokenButtons({ tokens, vocab, names, brackets, onchange }) {
  const list = el("ol", { class: "tokens by-hand", "aria-label": "Prompt: press a token to change it" });
  const name = (token) => names[token] ?? String(token);
  const buttons = tokens.map((_, i) => {
    const button = el("button", { type: "button", onclick: () => set(i, (tokens[i] + 1) % vocab) });
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step && buttons[i + step]) {
        event.preventDefault();
        buttons[i + step].focus();
      } else if (/^\d$/.test(event.key) && Number(event.key) < vocab) set(i, Number(event.key));
    });
    list.append(el("li", {}, button));
    return button;
  });
  function paint(i) {
    buttons[i].className = shadeOf(tokens[i]);
    buttons[i].setAttribute("aria-label", `token ${i + 1} is ${name(tokens[i])}: change it`);
    buttons[i].replaceChildren(name(tokens[i]), ...(brackets ? [el("span", { "aria-hidden": "true" }, tokens[i] === 0 ? "(" : ")")] : []));
  }
  function set(i, token) {
    performance.mark("flip");
    tokens[i] = token;
    paint(i);
    onchange();
  }
  tokens.forEach((_, i) => paint(i));
  return { node: list, setAll(given) {
    given.forEach((token, i) => {
      tokens[i] = token;
      paint(i);
    });
    onchange();
  } };
}

export function promptFor(state, facts, given = null) {
  const length = Number(state.length);
  const kept = given && given.length === length && given.every((token) => token < facts.vocab) ? given : null;
  return kept ? [...kept] : Array.from({ length }, (_, i) => (i < length / 2 ? 0 : facts.vocab > 1 ? 1 : 0));
}

export function steerView(app) {
  const facts = app.facts;
  const tokens = promptFor(app.state, facts, app.prompt);
  app.prompt = tokens;
  const brackets = app.state.utility === "dyck" && facts.vocab === 2 && !facts.names.length;
  const latents = app.latentsOf(app.state.model);
  const told = el("p", { class: "lead", id: "told", role: "status" });
  const wrong = el("p", { class: "warn", id: "wrong", role: "alert", hidden: true });
  const cloud = [0, 1, 2, 3].map((i) => liveFigure(`latents-${i + 1}`, i ? `Latents, part ${i + 1}` : "Latents after the prompt: the posterior"));
  const next = liveFigure("next", "Next token");
  const tree = liveFigure("tree", "What follows, and how useful it is");
  const atoms = liveFigure("atoms", "Which latent it is");
  const game = el("section", { id: "game" });
  const contest = { best: null, tries: 0, field: null, rivals: null, reveal: false };
  let last = null;

  const ask = newest(
    (prompt) => send("/api/steer", { ...cellOf(app.state, facts), prompt }),
    (answer, prompt) => {
      last = answer;
      wrong.hidden = true;
      contest.tries += 1;
      if (contest.best === null || answer.J > contest.best.J) contest.best = { J: answer.J, prompt };
      draw(answer);
      requestAnimationFrame(() => setTimeout(() => {
        if (performance.getEntriesByName("flip", "mark").length) performance.measure("flip to picture", "flip");
        performance.clearMarks("flip");
      }));
    },
    (error) => {
      wrong.textContent = error.message;
      wrong.hidden = false;
    },
  );

  function weigh() {
    if (!latents || !latents.kernels) return;
    const { weights } = posterior(latents, tokens);
    const drawn = clouds(latents, weights, app.left());
    cloud.forEach((figure, i) => figure.show(drawn[i] ? drawn[i].chart : null, () => latentsTable(latents, weights)));
  }

  function draw(answer) {
    const names = facts.names;
    const width = Math.min(app.right(), 720);
    const place = answer.rank === null ? "" : `, rank ${count(answer.rank)} of ${count(answer.prompts)} prompts`;
    told.textContent = `J is ${fixed(answer.J, 4)}${place}.`;
    const name = (v) => names[v] ?? String(v);
    const rows = answer.tree[0].map((p, v) => ({ label: name(v), shape: "circle", value: p }));
    next.show(dotRows([...rows], { width, xLabel: "probability", from: 0, to: 1, names: 60, label: `next token: ${rows.map((r) => `${r.label} ${fixed(r.value, 3)}`).join(", ")}` }), () => ({ columns: [{ label: "token", value: (r) => r.label, head: true }, { label: "probability", value: (r) => r.value, text: (r) => fixed(r.value, 5), number: true }], rows }));
    const shape = { vocab: facts.vocab, names };
    tree.show(treePicture(answer.tree, answer.utilities, { ...shape, width, label: "continuations by their probability" }), () => treeTable(answer.tree, answer.utilities, shape), "Boxes are as high as continuations are likely; those of the last column are bright where they are useful. J is the mean of their utility.");
    if (answer.atoms) {
      const weights = answer.atoms.map((w, i) => ({ label: facts.atoms[i], shape: "circle", value: w }));
      atoms.show(dotRows(weights, { width: app.left(), xLabel: "probability", from: 0, to: 1, names: 90, label: "posterior over all latents" }), () => ({ columns: [{ label: "latent", value: (r) => r.label, head: true }, { label: "probability", value: (r) => r.value, text: (r) => fixed(r.value, 5), number: true }], rows: weights }));
    }
    drawGame(game, contest, answer, app, strip);
  }

  const strip = tokenButtons({ tokens, vocab: facts.vocab, names: facts.names, brackets, onchange: flipped });
  function flipped() {
    app.keepPrompt();
    weigh();
    ask([...tokens]);
  }

  app.keepPrompt();
  weigh();
  ask([...tokens]);
  send("/api/field", { ...cellOf(app.state, facts), length: tokens.length }).then((field) => {
    contest.field = field;
    ask([...tokens]);
  }, () => {});

  const random = () => strip.setAll(tokens.map(() => Math.floor(Math.random() * facts.vocab)));
  const node = el(
    "div", {},
    el("h1", { tabindex: -1 }, "Steer by hand"),
    el("p", { class: "note" }, "Press a token to change it. The model reads the prompt as evidence of which process it is in, and continues accordingly."),
    strip.node,
    el("div", { class: "acts" }, el("button", { type: "button", onclick: random, id: "random" }, "Random prompt")),
    wrong, told,
    el("div", { class: "stage" }, el("div", {}, [...cloud, atoms].map((one) => one.node)), el("div", {}, game, [next, tree].map((one) => one.node))),
  );
  return { node, update: () => last && draw(last) };
}

// "Can you beat it?": J of all prompts, yours among them, and what methods found.
function drawGame(section, contest, answer, app, strip) {
  const { field, best } = contest;
  const parts = [el("h2", {}, "Can you beat it?")];
  const rivals = rivalsOf(app);
  const beaten = rivals.filter((one) => best.J > one.J + 1e-9).length;
  const words = rivals.length
    ? `Your best J so far is ${fixed(best.J, 4)}: better than ${count(beaten)} of ${count(rivals.length)} searches here (${rivals.map((one) => `${one.method} ${fixed(one.J, 4)}`).join(", ")}).`
    : `Your best J so far is ${fixed(best.J, 4)}, in ${count(contest.tries)} tries. Run a search for this cell under Search and watch to have a rival.`;
  parts.push(el("p", { class: "note", id: "score" }, words));
  if (field && field.prompts) {
    const crown = answer.rank === 1 ? "This is the best of all." : contest.reveal ? `The best is ${fixed(field.optimum, 4)}.` : "";
    const reveal = el("button", { type: "button", id: "reveal", onclick: () => {
      contest.reveal = true;
      strip.setAll(field.best);
    } }, "Show me the best");
    parts.push(fieldPicture(field, answer, app), el("p", {}, reveal, " ", crown));
  }
  section.replaceChildren(...parts);
}

function rivalsOf(app) {
  const same = app.runs.filter((run) => run.result?.expected_utility !== undefined && run.result.expected_utility !== null && app.sameCell(run));
  const found = same.flatMap((run) => [{ method: run.facts.method, J: run.result.expected_utility }, ...run.beside.filter((one) => one.expected_utility !== null).map((one) => ({ method: one.method, J: one.expected_utility }))]);
  return [...new Map(found.map((one) => [one.method, one])).values()];
}

// Every prompt of this length as a tick on one line, yours as a mark.
function fieldPicture(field, answer, app) {
  const width = Math.min(app.right(), 720);
  const x = axis(field.values.filter((v) => v !== null), { pad: 0.03 });
  const plot = frame({ width, height: 92, x, y: { ticks: [], share: () => 0.5 }, xLabel: `J of all ${count(field.prompts)} prompts; yours is the diamond`, label: `yours has rank ${answer.rank} of ${field.prompts}`, left: 16 });
  const [top, foot] = [plot.top + 6, plot.top + plot.height - 6];
  for (const value of field.values) if (value !== null) plot.root.append(svg("line", { x1: plot.x(value), x2: plot.x(value), y1: top, y2: foot, class: "ruled" }));
  plot.root.append(mark("diamond", plot.x(answer.J), (top + foot) / 2, 8, "var(--series-1)", `yours: ${significant(answer.J)}`));
  return plot.root;
}
