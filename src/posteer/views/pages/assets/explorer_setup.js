// What is asked: model, utility, lengths, method and seed, kept in the address.

import { el } from "./dom.js";
import { lawEditor, slider } from "./drag_pad.js";

export const DEFAULTS = { model: "urn", utility: "dyck", target: "", token: "1", length: "6", horizon: "4", method: "ppt-rb", seed: "0" };
const KINDS = { trained: "trained", exact: "exact Bayes", named: "named on starting" };
const GOALS = { dyck: "balanced brackets (Dyck)", frequency: "share of a token", target: "a Markov target" };

function numbers(text) {
  return text.split(",").map(Number);
}

function usual(vocab) {
  return Array.from({ length: vocab }, (_, c) => Array.from({ length: vocab }, (_, v) => (c === v ? 0.1 : Math.round((0.9 / (vocab - 1)) * 1e4) / 1e4)));
}

// The table that `target=0.1,0.9;0.9,0.1` means for so many tokens.
export function rowsOf(text, vocab) {
  const rows = text ? text.split(";").map(numbers) : [];
  const good = (rows.length === 1 || rows.length === vocab) && rows.every((row) => row.length === vocab && row.every((p) => p >= 0 && p <= 1) && row.some((p) => p > 0));
  return good ? rows : usual(vocab);
}

function textOf(rows) {
  return rows.map((row) => row.join(",")).join(";");
}

function shareOf(text) {
  const share = Number(text);
  return text !== "" && share >= 0 && share <= 1 ? share : 0.5;
}

// A utility as the server takes it.
export function utilityOf(state, facts) {
  if (state.utility === "frequency") return { kind: "frequency", target: shareOf(state.target), token: Math.min(Number(state.token) || 0, facts.vocab - 1) };
  if (state.utility === "target") return { kind: "target", rows: rowsOf(state.target, facts.vocab) };
  return { kind: "dyck" };
}

export function cellOf(state, facts) {
  return { model: state.model, utility: utilityOf(state, facts), horizon: Number(state.horizon) };
}

export function goalName(state) {
  if (state.utility === "frequency") return `share ${shareOf(state.target)}`;
  return state.utility === "dyck" ? "dyck" : "Markov target";
}

function choice(name, label, node) {
  node.id = `ask-${name}`;
  return el("label", { class: "choice" }, label, node);
}

function chooser(name, label, groups, value, onchange) {
  const options = ([id, text]) => el("option", { value: id, selected: id === value }, text);
  const inside = groups.map(([group, entries]) => (group ? el("optgroup", { label: group }, entries.map(options)) : entries.map(options)));
  return choice(name, label, el("select", { onchange: (event) => onchange(event.target.value) }, inside));
}

function whole(name, label, value, least, most, onchange) {
  const input = el("input", { type: "number", min: least, max: most, step: 1, value });
  input.addEventListener("change", () => {
    const number = Math.round(Number(input.value));
    const kept = Number.isFinite(number) ? Math.min(Math.max(number, least), most) : least;
    input.value = kept;
    onchange(String(kept));
  });
  return choice(name, label, input);
}

// Fills a node with everything that can be asked. `change(name, value, redraw)` is told of each.
export function drawSetup(node, menu, state, facts, change, { searches = true } = {}) {
  const models = Object.entries(KINDS).map(([kind, text]) => [text, menu.models.filter((one) => one.kind === kind).map((one) => [one.id, one.name])]);
  const set = (name, redraw = false) => (value) => change(name, value, redraw);
  const goals = Object.entries(GOALS).filter(([kind]) => kind !== "target" || facts.vocab <= 4);
  node.replaceChildren(
    chooser("model", "Model", models.filter(([, some]) => some.length), state.model, set("model", true)),
    chooser("utility", "Utility", [[null, goals]], state.utility, (value) => {
      state.target = "";
      change("utility", value, true);
    }),
    whole("length", "Prompt tokens", state.length, 1, 200, set("length")),
    whole("horizon", "Continuation", state.horizon, 1, 8, set("horizon")),
    ...(searches ? [
      chooser("method", "Method", [[null, menu.methods.map((name) => [name, name])]], state.method, set("method")),
      whole("seed", "Seed", state.seed, 0, 1e9, set("seed")),
    ] : []),
    el("div", { class: "goal" }, goalEditor(state, facts, change)),
  );
}

function goalEditor(state, facts, change) {
  if (state.utility === "frequency") {
    const names = Array.from({ length: facts.vocab }, (_, v) => [String(v), facts.names[v] ?? String(v)]);
    return [
      facts.vocab > 2 && chooser("token", "of token", [[null, names]], state.token, (value) => change("token", value, false)),
      slider("Target share", shareOf(state.target), (value) => change("target", String(value), false), { step: 0.05, id: "ask-share" }),
    ];
  }
  if (state.utility === "target") {
    const rows = rowsOf(state.target, facts.vocab);
    const single = rows.length === 1;
    const turn = (event) => change("target", textOf(event.target.checked ? [rows[0]] : usual(facts.vocab)), true);
    return [
      lawEditor(rows, (table) => change("target", textOf(table), false), { label: "Law of the target: drag the point" }),
      el("label", { class: "tick" }, el("input", { type: "checkbox", checked: single, onchange: turn, id: "ask-single" }), "the same after every token"),
    ];
  }
  return facts.vocab === 2 ? el("p", { class: "note" }, "0 is \u201c(\u201d and 1 is \u201c)\u201d: the continuation should be balanced.") : null;
}
