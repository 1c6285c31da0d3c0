// Latents as points: of two tokens in a square (or on a line), of three in a triangle.

import { el, svg } from "./dom.js";
import { SERIES } from "./colours.js";
import { axis, frame } from "./charts.js";
import { count, fixed } from "./format.js";
import { figure } from "./tables.js";
import { contextName } from "./data.js";

const MOST_PANELS = 4;

// What is drawn of each latent: [{ title, x(l), y(l), xLabel, yLabel, kind }].
function panelsOf({ vocab, order, kernels }) {
  const size = vocab ** (order + 1);
  const contexts = vocab ** order;
  const p = (l, c, v) => kernels[l * size + c * vocab + v];
  const after = (c) => (order ? ` | ${contextName(c, vocab, order)}` : "");
  if (vocab === 2 && order === 0) return [{ kind: "line", title: "", x: (l) => p(l, 0, 1), xLabel: "P(1)" }];
  if (vocab === 2) {
    return Array.from({ length: contexts / 2 }, (_, pair) => {
      const [a, b] = order === 1 ? [0, 1] : [2 * pair, 2 * pair + 1];
      return { kind: "square", title: "", x: (l) => p(l, a, 1), y: (l) => p(l, b, 1), xLabel: `P(1${after(a)})`, yLabel: `P(1${after(b)})` };
    });
  }
  if (vocab === 3) return Array.from({ length: contexts }, (_, c) => ({ kind: "triangle", title: order ? `after ${contextName(c, vocab, order)}` : "", x: (l) => p(l, c, 1) + p(l, c, 2) / 2, y: (l) => (p(l, c, 2) * Math.sqrt(3)) / 2 }));
  return [];
}

function radius(weight, most) {
  return 1 + 9 * Math.sqrt(weight / most);
}

function drawLine(panel, weights, width) {
  const bins = 40;
  const [prior, after] = [new Array(bins).fill(0), new Array(bins).fill(0)];
  weights.forEach((w, l) => {
    const at = Math.min(bins - 1, Math.floor(panel.x(l) * bins));
    prior[at] += bins / weights.length;
    after[at] += w * bins;
  });
  const x = axis([], { from: 0, to: 1 });
  const plot = frame({ width, height: 240, x, y: axis([0, ...prior, ...after], { from: 0 }), xLabel: panel.xLabel, yLabel: "density", label: `latents by ${panel.xLabel}: before the prompt (grey outline) and after it` });
  const base = plot.y(0);
  for (let b = 0; b < bins; b += 1) {
    const [left, right] = [plot.x(b / bins), plot.x((b + 1) / bins)];
    if (after[b]) plot.root.append(svg("rect", { x: left + 0.5, y: plot.y(after[b]), width: right - left - 1, height: base - plot.y(after[b]), fill: SERIES[0] }));
    plot.root.append(svg("path", { d: `M${left} ${base}V${plot.y(prior[b])}H${right}V${base}`, class: "ruled", fill: "none" }));
  }
  return plot.root;
}

function drawSquare(panel, weights, width) {
  const size = Math.min(width, 420);
  const plot = frame({ width: size, height: size, x: axis([], { from: 0, to: 1 }), y: axis([], { from: 0, to: 1 }), xLabel: panel.xLabel, yLabel: panel.yLabel, label: `latents by ${panel.xLabel} and ${panel.yLabel}: dots before the prompt, discs by weight after it` });
  drawPoints(plot.root, weights, (l) => [plot.x(panel.x(l)), plot.y(panel.y(l))]);
  return plot.root;
}

function drawTriangle(panel, weights, width) {
  const size = Math.min(width, 340);
  const [left, top, side] = [34, 40, size - 68];
  const place = (x, y) => [left + x * side, top + (Math.sqrt(3) / 2 - y) * side];
  const height = top + (side * Math.sqrt(3)) / 2 + 34;
  const root = svg("svg", { viewBox: `0 0 ${size} ${height}`, width: size, height, role: "img", class: "plot", "aria-label": `latents ${panel.title} in a triangle: dots before the prompt, discs by weight after it` });
  const corners = [place(0, 0), place(1, 0), place(0.5, Math.sqrt(3) / 2)];
  root.append(svg("path", { d: `M${corners.map((c) => c.join(" ")).join("L")}Z`, class: "ruled", fill: "none" }));
  corners.forEach(([x, y], v) => root.append(svg("text", { class: "tick", x, y: v === 2 ? y - 12 : y + 22, "text-anchor": "middle" }, `always ${v}`)));
  drawPoints(root, weights, (l) => place(panel.x(l), panel.y(l)));
  return root;
}

function drawPoints(root, weights, place) {
  const most = Math.max(...weights, 12 / weights.length); // latents that weigh alike are small
  const heavy = [];
  let dust = ""; // one node for all of them: a thousand take long to draw
  weights.forEach((w, l) => {
    const [x, y] = place(l);
    dust += `M${(x - 1.3).toFixed(1)} ${y.toFixed(1)}a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0 -2.6 0`;
    if (w > most * 5e-3) heavy.push([w, x, y]);
  });
  root.append(svg("path", { d: dust, class: "dust" }));
  heavy.sort((a, b) => b[0] - a[0]);
  for (const [w, x, y] of heavy) root.append(svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: radius(w, most).toFixed(2), fill: SERIES[0], "fill-opacity": 0.35, stroke: SERIES[0], "stroke-width": 0.6 }));
}

export function latentsTable(latents, weights) {
  const { vocab, order, kernels } = latents;
  const size = vocab ** (order + 1);
  const rows = weights.map((w, l) => ({ l, w })).sort((a, b) => b.w - a.w).slice(0, 100);
  const columns = [{ label: "latent", value: (r) => r.l + 1, number: true, head: true }, { label: "weight", value: (r) => r.w, text: (r) => fixed(r.w, 5), number: true }];
  for (let j = 0; j < size; j += 1) {
    const context = contextName(Math.floor(j / vocab), vocab, order);
    columns.push({ label: `P(${j % vocab}${context ? ` | ${context}` : ""})`, value: (r) => kernels[r.l * size + j], text: (r) => fixed(kernels[r.l * size + j], 4), number: true });
  }
  return { columns, rows };
}

// Pictures of latents under some weights, which sum to one: [{ title, chart }]; none of large tables.
export function clouds(latents, weights, width) {
  const draw = { line: drawLine, square: drawSquare, triangle: drawTriangle };
  return panelsOf(latents).slice(0, MOST_PANELS).map((panel) => ({ title: panel.title, chart: draw[panel.kind](panel, weights, width) }));
}

export function latentPanels(latents, tokens, posterior, width) {
  if (!latents || !latents.kernels) return el("p", { class: "note" }, latents && latents.why ? latents.why : "No latents of this model are at hand.");
  const { weights, ess } = posterior(latents, tokens);
  const shown = latents.of && latents.of > latents.shown ? `The first ${count(latents.shown)} of ${count(latents.of)} latents of` : `${count(latents.shown)} latents of`;
  const note = `${shown} ${latents.source}, weighed here by how likely each makes the hard prompt: effective sample size ${count(ess)} of ${count(latents.shown)}. The table holds the hundred heaviest.`;
  const panels = clouds(latents, weights, Math.min(width, 560));
  if (!panels.length) return el("p", { class: "note" }, `No picture of ${latents.vocab} tokens. ${note}`);
  const table = latentsTable(latents, weights);
  const titled = (title) => ["Where the prompt moves them", title].filter(Boolean).join(", ");
  const drawn = panels.map(({ title, chart }, at) => figure(`latents-${at + 1}`, titled(title), chart, table));
  return [el("p", { class: "note" }, note), el("div", { class: "pair" }, drawn)];
}
