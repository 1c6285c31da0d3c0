// Runs as the page knows them: their messages put together, those of earlier visits too.

import { bytesOf } from "./data.js";
import { follow } from "./explorer_api.js";

export class LiveRun {
  constructor(facts, order, changed) {
    this.facts = facts;
    this.order = order;
    this.changed = changed;
    this.state = "running";
    this.error = null;
    this.latents = null;
    this.frames = [];
    this.searched = [];
    this.candidates = null;
    this.progress = null;
    this.result = null;
    this.beside = [];
    this.shown = true;
    this.source = follow(facts.id, (message) => this.hear(message), () => this.lost());
  }

  get label() {
    const { method, utility, name, length, seed } = this.facts;
    return `${method}, ${utility} on ${name}, m=${length}, seed ${seed}`;
  }

  hear(message) {
    if (message.type === "latents" && message.kernels) this.latents = { ...message, source: "the ascent", kernels: new Float32Array(bytesOf(message.kernels).buffer) };
    else if (message.type === "ascent") this.frames.push({ ...message, weights: weightsOf(message.weights) });
    else if (message.type === "candidates") {
      this.candidates = message;
      if (!message.snapped) this.searched.push([message.tried, message.values[0]]);
    } else if (message.type === "progress") this.progress = message;
    else if (message.type === "result") this.result = message;
    else if (message.type === "beside") this.beside.push(message);
    else if (message.type === "end") {
      this.state = message.state;
      this.error = message.error || null;
      this.progress = null;
    }
    this.changed(this);
  }

  lost() {
    if (this.state !== "running") return;
    this.state = "lost";
    this.changed(this);
  }

  // The prompt it has found, or the best one it knows so far.
  get prompt() {
    return this.result?.prompt ?? this.candidates?.prompts[0] ?? null;
  }
}

// Weights that sum to one, from a byte each: the square root of the share of the largest.
export function weightsOf(text) {
  const raw = Array.from(bytesOf(text), (level) => (level / 255) ** 2);
  const total = raw.reduce((sum, w) => sum + w, 0) || 1;
  return raw.map((w) => w / total);
}
