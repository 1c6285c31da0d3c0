// Laws that are set by hand: a point in a square that is dragged, with sliders for the keyboard.

import { el, svg } from "./dom.js";
import { axis, frame, mark } from "./charts.js";
import { fixed } from "./format.js";
import { contextName } from "./data.js";

export function slider(label, value, onchange, { least = 0, most = 1, step = 0.01, digits = 2, id = null } = {}) {
  const shown = el("output", {}, fixed(value, digits));
  const input = el("input", { type: "range", min: least, max: most, step, value, id });
  input.addEventListener("input", () => {
    shown.textContent = fixed(Number(input.value), digits);
    onchange(Number(input.value));
  });
  return el("label", { class: "slide" }, el("span", {}, label), input, shown);
}

// A square whose point says P(1 after 0) across and P(1 after 1) upwards.
export function pad(rows, onchange, { label, size = 260 } = {}) {
  const unit = () => axis([], { from: 0, to: 1 });
  const plot = frame({ width: size, height: size, x: unit(), y: unit(), xLabel: "P(1 | 0)", yLabel: "P(1 | 1)", label });
  let point = null;
  const place = ([a, b]) => {
    const drawn = mark("diamond", plot.x(a), plot.y(b), 8, "var(--series-1)", `P(1 | 0) ${fixed(a, 2)}, P(1 | 1) ${fixed(b, 2)}`);
    if (point) point.replaceWith(drawn);
    else plot.root.append(drawn);
    point = drawn;
  };
  const catcher = svg("rect", { x: plot.left, y: plot.top, width: plot.width, height: plot.height, fill: "transparent", class: "catcher" });
  plot.root.append(catcher);
  const from = (event) => {
    const box = plot.root.getBoundingClientRect();
    const scale = size / box.width;
    const clip = (v) => Math.round(Math.min(Math.max(v, 0), 1) * 100) / 100;
    return [clip(((event.clientX - box.left) * scale - plot.left) / plot.width), clip(1 - ((event.clientY - box.top) * scale - plot.top) / plot.height)];
  };
  const move = (event) => {
    const at = from(event);
    place(at);
    onchange(at);
  };
  catcher.addEventListener("pointerdown", (event) => {
    catcher.setPointerCapture(event.pointerId);
    move(event);
  });
  catcher.addEventListener("pointermove", (event) => {
    if (event.buttons) move(event);
  });
  place([rows[0][1], rows[1][1]]);
  return { node: el("div", { class: "pad" }, plot.root), place };
}

function binary(p) {
  return [Math.round((1 - p) * 1e4) / 1e4, p];
}

// A table of laws: of two tokens a pad and sliders, of more a slider for each probability.
export function lawEditor(rows, onchange, { name = "target", label } = {}) {
  const table = rows.map((row) => [...row]);
  const [contexts, vocab] = [table.length, table[0].length];
  const order = contexts === 1 ? 0 : 1;
  const after = (c, v) => `P(${v}${order ? ` | ${contextName(c, vocab, order)}` : ""})`;
  if (vocab > 2) {
    const sliders = table.flatMap((row, c) => row.map((p, v) => slider(after(c, v), p, (value) => {
      table[c][v] = value;
      onchange(table);
    }, { step: 0.05, id: `${name}-${c}-${v}` })));
    return el("div", { class: "laws" }, sliders);
  }
  const square = contexts === 2 ? pad(table, ([a, b]) => {
    [table[0], table[1]] = [binary(a), binary(b)];
    sliders.forEach((one, c) => {
      one.querySelector("input").value = table[c][1];
      one.querySelector("output").textContent = fixed(table[c][1], 2);
    });
    onchange(table);
  }, { label }) : null;
  const sliders = table.map((row, c) => slider(after(c, 1), row[1], (value) => {
    table[c] = binary(value);
    if (square) square.place([table[0][1], table[1][1]]);
    onchange(table);
  }, { id: `${name}-${c}` }));
  return el("div", { class: "laws" }, square && square.node, el("div", {}, sliders));
}
