// The runs of a sweep as columns, cells made of them, and their figures.

export const STATISTICS = {
  J: { label: "J, expected utility", short: "J", column: "expected_utility", better: "high", digits: 3, published: "J" },
  rank: { label: "rank among all prompts", short: "rank", column: "rank", better: "low", log: true, digits: 1, published: "rank" },
  ess: { label: "ESS, share of latents", short: "ESS/L", column: "ess_fraction", better: "high", digits: 3, published: "ess" },
  khat: { label: "Pareto k-hat", short: "k-hat", column: "pareto_k", better: "low", digits: 2 },
  tokens: { label: "model tokens of the search", short: "tokens", better: "low", log: true, digits: 0 },
  seconds: { label: "seconds", short: "seconds", column: "seconds", better: "low", log: true, digits: 3 },
};

export function bytesOf(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export class Sweep {
  constructor(data) {
    this.data = data;
    this.size = data.size;
    this.untrusted = new Set(data.untrusted);
    this.byRun = new Map(data.runs.map((name, i) => [name, i]));
    this.cells = this.makeCells();
    this.published = this.placePublished();
  }

  text(name, i) {
    const { values, codes } = this.data.texts[name];
    const code = Array.isArray(codes) ? codes[i] : codes;
    return code < 0 ? null : values[code];
  }

  code(name, i) {
    const { codes } = this.data.texts[name];
    return Array.isArray(codes) ? codes[i] : codes;
  }

  values(name) {
    return this.data.texts[name].values;
  }

  figure(name, i) {
    const column = this.data.figures[name];
    return Array.isArray(column) ? column[i] : column;
  }

  tokens(i) {
    const [forward, backward] = [this.figure("forward_tokens", i), this.figure("backward_tokens", i)];
    return forward === null && backward === null ? null : (forward || 0) + (backward || 0);
  }

  statistic(name, i) {
    return name === "tokens" ? this.tokens(i) : this.figure(STATISTICS[name].column, i);
  }

  family(utility) {
    return this.data.families[this.values("utility").indexOf(utility)];
  }

  label(utility) {
    return this.data.labels[this.values("utility").indexOf(utility)] ?? utility;
  }

  heading(method) {
    return this.data.headings[this.values("method").indexOf(method)] ?? method;
  }

  families() {
    return [...new Set(this.data.families)];
  }

  makeCells() {
    const axes = ["model", "horizon", "max_model_tokens", "utility", "length", "method"];
    const found = new Map();
    for (let i = 0; i < this.size; i += 1) {
      const key = axes.map((axis) => this.code(axis, i)).join(" ");
      let cell = found.get(key);
      if (!cell) {
        cell = new Cell(this, i);
        found.set(key, cell);
      }
      cell.runs.push(i);
    }
    return [...found.values()];
  }

  placePublished() {
    const place = (one) => [one.model, one.utility, one.length, one.method, one.horizon].join("\u0000");
    const known = new Map(this.data.published.map((one) => [place(one), one.figures]));
    for (const cell of this.cells) cell.published = known.get(place(cell)) || {};
    return known.size > 0;
  }

  // Cells that all filters keep; every word of a search is somewhere in a cell's names.
  filtered(query) {
    const words = (query.search || "").toLowerCase().split(/\s+/).filter(Boolean);
    return this.cells.filter((cell) => {
      for (const axis of ["model", "method", "utility"]) if (query[axis] && cell[axis] !== query[axis]) return false;
      if (query.length && String(cell.length) !== query.length) return false;
      if (query.family && cell.family !== query.family) return false;
      if (query.state && !cell.count(query.state)) return false;
      return words.every((word) => cell.words.includes(word));
    });
  }

  find(query) {
    const wanted = ["model", "utility", "length", "method", "horizon", "budget"].filter((axis) => query[axis]);
    return this.cells.find((cell) => wanted.every((axis) => String(cell[axis] ?? "") === query[axis]));
  }

  cellOf(i) {
    return this.cells.find((cell) => cell.runs.includes(i));
  }

  isUntrusted(i) {
    return this.untrusted.has(i);
  }

  state(i) {
    const status = this.text("status", i);
    return status === "done" && this.isUntrusted(i) ? "untrusted" : status;
  }

  curve(i) {
    const known = this.data.curves && this.data.curves.runs[i];
    if (!known) return null;
    const { grid, whole } = this.data.curves;
    const few = known.steps <= whole;
    const steps = few ? Array.from({ length: known.steps }, (_, at) => at + 1) : grid.filter((step) => step < known.steps).concat(known.steps);
    const series = {};
    for (const [name, [low, high, text]] of Object.entries(known.series)) {
      const levels = new Uint16Array(bytesOf(text).buffer);
      series[name] = Array.from(levels, (level) => (level > 65534 ? null : low + ((high - low) * level) / 65534));
    }
    return { steps, of: known.steps, series };
  }

  latents(model) {
    const known = this.data.latents[model];
    if (!known || !known.kernels) return known || null;
    return { ...known, kernels: new Float32Array(bytesOf(known.kernels).buffer) };
  }
}

class Cell {
  constructor(sweep, i) {
    this.sweep = sweep;
    this.runs = [];
    this.model = sweep.text("model", i);
    this.utility = sweep.text("utility", i);
    this.method = sweep.text("method", i);
    this.length = sweep.text("length", i);
    this.horizon = sweep.text("horizon", i);
    this.budget = sweep.text("max_model_tokens", i);
    this.family = sweep.family(this.utility);
    this.label = sweep.label(this.utility);
    this.heading = sweep.heading(this.method);
    this.words = [this.model, this.utility, this.label, this.family, this.method, this.heading, `m=${this.length}`].join(" ").toLowerCase();
    this.known = {};
  }

  count(state) {
    return this.counts()[state];
  }

  counts() {
    if (!this.states) {
      this.states = { failed: 0, diverged: 0, untrusted: 0 };
      for (const i of this.runs) {
        const state = this.sweep.state(i);
        if (state in this.states) this.states[state] += 1;
      }
    }
    return this.states;
  }

  // Mean and standard error over runs that have the figure.
  figure(statistic) {
    if (!(statistic in this.known)) {
      const values = this.runs.map((i) => this.sweep.statistic(statistic, i)).filter((v) => v !== null);
      this.known[statistic] = values.length ? summary(values) : null;
    }
    return this.known[statistic];
  }

  query() {
    const many = (name) => this.sweep.values(name).length > 1;
    return {
      model: this.model, utility: this.utility, length: this.length, method: this.method,
      horizon: many("horizon") ? this.horizon : "", budget: this.budget ?? "",
    };
  }
}

export function summary(values) {
  const n = values.length;
  const mean = values.reduce((sum, v) => sum + v, 0) / n;
  const spread = values.reduce((sum, v) => sum + (v - mean) ** 2, 0);
  return { mean, n, error: n > 1 ? Math.sqrt(spread / (n - 1) / n) : null };
}

export function tokensOf(prompt) {
  if (prompt === null) return [];
  return (prompt.includes(",") ? prompt.split(",") : [...prompt]).map(Number);
}

// How often each token follows each context of so many tokens; the first ones only set it.
export function transitions(tokens, vocab, order) {
  const contexts = vocab ** order;
  const table = Array.from({ length: contexts }, () => new Array(vocab).fill(0));
  let context = 0;
  tokens.forEach((token, at) => {
    if (at >= order) table[context][token] += 1;
    context = (context * vocab + token) % contexts;
  });
  return table;
}

// Weights of latents once a prompt is read, and their effective sample size.
export function posterior(latents, tokens) {
  const { kernels, vocab, order, shown } = latents;
  const size = vocab ** (order + 1);
  const counts = transitions(tokens, vocab, order).flat();
  const logs = Array.from({ length: shown }, (_, l) => {
    let sum = 0;
    for (let j = 0; j < size; j += 1) if (counts[j]) sum += counts[j] * Math.log(kernels[l * size + j]);
    return sum;
  });
  const most = Math.max(...logs);
  const raw = logs.map((v) => Math.exp(v - most));
  const total = raw.reduce((sum, v) => sum + v, 0);
  const weights = raw.map((v) => v / total);
  return { weights, ess: 1 / weights.reduce((sum, w) => sum + w * w, 0) };
}

export function contextName(context, vocab, order) {
  const digits = [];
  for (let i = 0; i < order; i += 1) {
    digits.unshift(context % vocab);
    context = Math.floor(context / vocab);
  }
  return digits.join(vocab > 10 ? "," : "");
}
