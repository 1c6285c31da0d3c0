// Charts in SVG: axes, points with shapes, lines. Texts are texts, colours come with shapes.

import { svg } from "./dom.js";
import { fixed, significant, short } from "./format.js";

function niceStep(span, most) {
  const raw = span / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= raw);
}

export function linearTicks(low, high, most = 6) {
  const step = niceStep(high - low, most);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) ticks.push(10 ** power);
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length >= 2 ? inside : [low, high];
}

// An axis for some values: { low, high, at(value), ticks, log }.
// With `trim`, few values far out do not squeeze the rest: they are placed at the edge.
export function axis(values, { log = false, from = null, to = null, pad = 0.05, trim = false } = {}) {
  let usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0)).sort((a, b) => a - b);
  let trimmed = false;
  if (trim && usable.length > 20) {
    const inner = usable.slice(Math.floor(usable.length * 0.04), Math.ceil(usable.length * 0.96));
    trimmed = usable.at(-1) - usable[0] > 2.5 * (inner.at(-1) - inner[0]);
    if (trimmed) usable = inner;
  }
  let low = from ?? (usable.length ? Math.min(...usable) : log ? 1 : 0);
  let high = to ?? (usable.length ? Math.max(...usable) : log ? 10 : 1);
  if (log) {
    if (high / low < 1.5) [low, high] = [low / 1.5, high * 1.5];
    const room = pad * Math.log(high / low);
    if (from === null) low *= Math.exp(-room);
    if (to === null) high *= Math.exp(room);
    return { low, high, log, share: (v) => Math.log(v / low) / Math.log(high / low), ticks: logTicks(low, high) };
  }
  if (high - low < 1e-9 * Math.max(1, Math.abs(high))) {
    const size = Math.max(Math.abs(high) * 0.1, 1e-3);
    [low, high] = [low - size, high + size];
  }
  const room = pad * (high - low);
  if (from === null) low -= room;
  if (to === null) high += room;
  const within = (v) => (trimmed ? Math.min(Math.max(v, low), high) : v);
  const beyond = values.filter((v) => trimmed && (v < low || v > high)).length;
  return { low, high, log, beyond, share: (v) => (within(v) - low) / (high - low), ticks: linearTicks(low, high) };
}

// The frame of a plot: axes with grid lines; `x` and `y` place values within it.
export function frame({ width, height, x, y, xLabel, yLabel, label, left = null }) {
  const textOf = (scale, tick) => (scale.log && tick >= 1) || Math.abs(tick) >= 10000 ? short(tick) : significant(tick);
  left ??= 30 + 7 * Math.max(2, ...y.ticks.map((tick) => textOf(y, tick).length));
  const [right, top, bottom] = [14, 10, 42];
  const [w, h] = [width - left - right, height - top - bottom];
  const placeX = (v) => left + x.share(v) * w;
  const placeY = (v) => top + (1 - y.share(v)) * h;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "plot" });
  const crowd = Math.max(1, Math.ceil(x.ticks.length / Math.max(2, Math.floor(w / 56))));
  x.ticks.forEach((tick, i) => {
    root.append(svg("line", { class: "grid", x1: placeX(tick), x2: placeX(tick), y1: top, y2: top + h }));
    if (i % crowd === 0) root.append(svg("text", { class: "tick", x: placeX(tick), y: top + h + 16, "text-anchor": "middle" }, textOf(x, tick)));
  });
  for (const tick of y.ticks) {
    root.append(svg("line", { class: "grid", x1: left, x2: left + w, y1: placeY(tick), y2: placeY(tick) }));
    root.append(svg("text", { class: "tick", x: left - 6, y: placeY(tick) + 4, "text-anchor": "end" }, textOf(y, tick)));
  }
  root.append(svg("text", { class: "axis", x: left + w / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
  if (yLabel) root.append(svg("text", { class: "axis", x: 12, y: top + h / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${top + h / 2})` }, yLabel));
  return { root, x: placeX, y: placeY, left, top, width: w, height: h };
}

// A mark with a shape of its own, so that colour is not needed to tell it.
export function mark(shape, x, y, size, colour, title = null) {
  const more = title ? [svg("title", {}, title)] : [];
  const solid = { fill: colour, stroke: "none", class: "mark" };
  const line = { fill: "none", stroke: colour, "stroke-width": 1.8, class: "mark" };
  const path = (d, style) => svg("path", { d, ...style }, ...more);
  const r = size;
  switch (shape) {
    case "square": return svg("rect", { x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8, ...solid }, ...more);
    case "triangle": return path(`M${x} ${y - r * 1.15}L${x + r} ${y + r * 0.8}L${x - r} ${y + r * 0.8}Z`, solid);
    case "diamond": return path(`M${x} ${y - r * 1.2}L${x + r * 1.2} ${y}L${x} ${y + r * 1.2}L${x - r * 1.2} ${y}Z`, solid);
    case "cross": return path(`M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}`, line);
    case "ring": return svg("circle", { cx: x, cy: y, r, ...line }, ...more);
    case "wedge": return path(`M${x} ${y + r * 1.15}L${x + r} ${y - r * 0.8}L${x - r} ${y - r * 0.8}Z`, solid);
    default: return svg("circle", { cx: x, cy: y, r, ...solid }, ...more);
  }
}

// A line through points; it breaks where a value is missing.
export function polyline(points, colour, dash = null) {
  let d = "";
  let open = false;
  for (const [x, y] of points) {
    if (x === null || y === null || !Number.isFinite(x) || !Number.isFinite(y)) open = false;
    else {
      d += `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      open = true;
    }
  }
  return svg("path", { d, fill: "none", stroke: colour, "stroke-width": 1.6, "stroke-dasharray": dash });
}

// Names with their marks, in rows below each other where they do not fit beside.
export function legendOf(entries, width) {
  const items = [];
  let [x, y] = [8, 14];
  for (const [name, shape, colour] of entries) {
    const wide = 34 + name.length * 7;
    if (x + wide > width && x > 8) [x, y] = [8, y + 20];
    items.push(mark(shape, x + 6, y - 4, 4.5, colour), svg("text", { class: "tick", x: x + 16, y }, name));
    x += wide;
  }
  return svg("svg", { viewBox: `0 0 ${width} ${y + 8}`, width, height: y + 8, class: "plot", "aria-hidden": "true" }, ...items);
}

// Figures below each other on one axis, each with its name: [{ label, shape, value, error, own }].
export function dotRows(rows, { width, xLabel, label, from = null, to = null, names = 230 }) {
  const ends = rows.flatMap(({ value, error }) => [value - 2 * (error || 0), value + 2 * (error || 0)]);
  const narrow = width < names + 290;
  const left = narrow ? 16 : names;
  const step = narrow ? 40 : 28;
  const x = axis(ends, { from, to, pad: 0.1 });
  const plot = frame({ width, height: rows.length * step + 62, x, y: { ticks: [], share: () => 0 }, xLabel, label, left });
  rows.forEach((row, at) => {
    const y = plot.top + (at + 0.5) * step + (narrow ? 8 : 0);
    const colour = row.own ? "var(--series-1)" : "var(--series-0)";
    plot.root.append(svg("text", { class: row.own ? "tick strong" : "tick", x: narrow ? left : left - 10, y: narrow ? y - 12 : y + 4, "text-anchor": narrow ? "start" : "end" }, `${row.label}${narrow ? `: ${fixed(row.value, 4)}` : ""}`));
    if (row.error) plot.root.append(svg("line", { x1: plot.x(row.value - 2 * row.error), x2: plot.x(row.value + 2 * row.error), y1: y, y2: y, stroke: colour, "stroke-width": 2 }));
    plot.root.append(mark(row.shape, plot.x(row.value), y, 5, colour, `${row.label}: ${fixed(row.value, 4)}`));
  });
  return plot.root;
}
