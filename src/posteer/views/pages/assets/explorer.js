// The explorer's page: what is asked stands in the address, views are drawn from it.

import { el, link } from "./dom.js";
import { makeHash, parseHash, replaceHash } from "./routing.js";
import { applyTheme, listenToKeys, pageFrame } from "./chrome.js";
import { bytesOf } from "./data.js";
import { ask } from "./explorer_api.js";
import { DEFAULTS, drawSetup } from "./explorer_setup.js";
import { LiveRun } from "./live_runs.js";
import { watchView } from "./view_watch.js";
import { steerView } from "./view_steer.js";
import { tourView } from "./view_tour.js";

const TABS = [["watch", "Search and watch"], ["steer", "Steer by hand"], ["tour", "Tour"]];
const VIEWS = { watch: watchView, steer: steerView, tour: tourView };
const KEYS = [
  ["\u2190 \u2192", "move between tokens of a prompt"],
  ["space, 0, 1", "change a token"],
];
const TERMS = [
  ["model", "It predicts the next token. Which process its tokens come from it must guess: it has a prior over latents."],
  ["latent", "One process that the model thinks possible: here a table of laws of the next token."],
  ["prior, posterior", "How likely each latent is before a prompt, and after the model has read it."],
  ["prompt kernel", "A law from which prompts could be drawn. An ascent moves it instead of a hard prompt, since it can be moved a little."],
  ["tilt", "How a prompt kernel weighs the latents: by how likely each makes the kernel's prompts."],
  ["surrogate", "The utility that the weighed latents expect: what the ascent climbs, without asking the model."],
  ["snapping", "From the kernel back to a hard prompt: those near it are scored, the best is taken."],
  ["J, expected utility", "How good a prompt is: the mean utility of what the model itself writes after it."],
  ["ESS", "Effective sample size: how many of the latents still count once they are weighed, as a share."],
];

class App {
  constructor(menu) {
    this.menu = menu;
    this.state = { ...DEFAULTS };
    this.known = new Map();
    this.runs = [];
    this.selected = null;
    this.prompt = null;
    this.facts = null;
    this.view = null;
    this.waiting = false;
    const report = el("a", { href: "/report", target: "_blank", rel: "noopener", class: "button" }, "Report");
    this.page = pageFrame({ name: "explorer", kind: "posteer", tabs: TABS, terms: TERMS, keys: KEYS, role: "group", more: report });
  }

  width() {
    return this.page.main.clientWidth - 8;
  }

  // Widths of the two columns that pictures stand in.
  left() {
    return Math.min(this.width(), 440);
  }

  right() {
    return this.width() < 900 ? this.width() : this.width() - 480;
  }

  async learn(id) {
    if (!this.known.has(id)) {
      const facts = await ask(`/api/model?id=${encodeURIComponent(id)}`);
      const { latents } = facts;
      if (latents.kernels) facts.latents = { ...latents, kernels: new Float32Array(bytesOf(latents.kernels).buffer) };
      this.known.set(id, facts);
    }
    return this.known.get(id);
  }

  latentsOf(id) {
    return this.known.get(id)?.latents ?? null;
  }

  watch(facts) {
    const run = new LiveRun(facts, this.runs.length, () => this.changed());
    this.runs.push(run);
    this.selected = run;
    this.changed();
    return run;
  }

  // Draws what is new, once for all that came since the last picture.
  changed() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.view) this.view.update();
    });
  }

  steer(run) {
    this.prompt = [...run.result.prompt];
    this.state = { ...this.state, model: run.facts.model, length: String(run.facts.length), horizon: String(run.facts.horizon) };
    location.hash = this.address("steer");
  }

  sameCell(run) {
    const { facts } = run;
    const { model, length, horizon, utility } = this.state;
    const goal = facts.utility.startsWith("frequency") ? "frequency" : facts.utility === "dyck" ? "dyck" : "target";
    return facts.model === model && String(facts.length) === length && String(facts.horizon) === horizon && goal === utility;
  }

  keepPrompt() {
    if (this.name === "steer") replaceHash(this.address("steer"));
  }

  address(view) {
    const asked = Object.fromEntries(Object.entries(this.state).filter(([name, value]) => value !== DEFAULTS[name]));
    const prompt = view === "steer" && this.prompt ? { prompt: this.prompt.join(this.prompt.some((t) => t > 9) ? "," : "") } : {};
    return makeHash(view, { ...asked, ...prompt });
  }

  // Something that is asked has changed.
  change(name, value, redraw) {
    this.state[name] = value;
    replaceHash(this.address(this.name));
    if (redraw || this.name !== "watch") this.show();
    else this.select();
  }

  select() {
    this.page.select(this.name, (view) => this.address(view));
  }

  read() {
    const route = parseHash(location.hash);
    this.name = Object.hasOwn(VIEWS, route.view) ? route.view : "watch";
    for (const name of Object.keys(DEFAULTS)) this.state[name] = Object.hasOwn(route.query, name) ? route.query[name] : DEFAULTS[name];
    this.step = Number(route.query.step) || 1;
    if (!this.menu.models.some((one) => one.id === this.state.model)) this.state.model = DEFAULTS.model;
    const { prompt } = route.query;
    if (prompt && /^[\d,]+$/.test(prompt)) {
      this.prompt = (prompt.includes(",") ? prompt.split(",") : [...prompt]).map(Number);
      this.state.length = String(this.prompt.length);
    }
  }

  async show(focus = false) {
    const model = this.state.model;
    try {
      const facts = await this.learn(model);
      if (model !== this.state.model) return;
      this.facts = facts;
      const touring = this.name === "tour";
      this.page.filters.hidden = touring;
      const kept = document.activeElement?.id;
      if (!touring) drawSetup(this.page.filters, this.menu, this.state, facts, (...given) => this.change(...given), { searches: this.name === "watch" });
      this.view = await VIEWS[this.name](this);
      this.page.main.replaceChildren(this.view.node);
      if (kept && !focus) document.getElementById(kept)?.focus({ preventScroll: true });
    } catch (error) {
      this.view = null;
      this.page.main.replaceChildren(el("h1", { tabindex: -1 }, "This cannot be shown"), el("p", { class: "warn", id: "wrong" }, error.message), link("#/watch", "Begin anew"));
    }
    const heading = this.page.main.querySelector("h1");
    document.title = `${heading.textContent} \u2013 posteer explorer`;
    this.select();
    if (focus) heading.focus({ preventScroll: true });
    document.documentElement.dataset.ready = "yes";
  }
}

async function start() {
  applyTheme();
  const [menu, { runs }] = await Promise.all([ask("/api/menu"), ask("/api/runs")]);
  const app = new App(menu);
  app.read();
  for (const facts of runs) {
    await app.learn(facts.model).catch(() => {});
    app.watch(facts);
  }
  await app.show();
  listenToKeys({ dialog: app.page.dialog, up: () => {} });
  window.addEventListener("hashchange", () => {
    app.read();
    app.show(true);
  });
  let wide = window.innerWidth;
  window.addEventListener("resize", () => {
    if (Math.abs(window.innerWidth - wide) < 20) return;
    wide = window.innerWidth;
    app.changed();
  });
}

start().catch((error) => {
  document.getElementById("page").replaceChildren(el("main", {}, el("h1", {}, "The explorer cannot start"), el("p", { class: "warn" }, error.message)));
  document.documentElement.dataset.ready = "yes";
});
