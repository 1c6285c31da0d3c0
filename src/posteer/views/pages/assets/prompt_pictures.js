// Prompts as tokens, and tables of laws as heat maps.

import { el, svg } from "./dom.js";
import { amountScale, inkOn } from "./colours.js";
import { fixed } from "./format.js";
import { contextName } from "./data.js";

export function shadeOf(token) {
  return `token t${Math.min(token, 5)}`;
}

export function tokenStrip(tokens, brackets, names = []) {
  const name = (token) => names[token] ?? String(token);
  return el(
    "ol", { class: "tokens", "aria-label": `prompt of ${tokens.length} tokens: ${tokens.map(name).join(" ")}` },
    tokens.map((token, i) => el("li", { class: shadeOf(token), title: `token ${i + 1}` }, name(token), brackets && el("span", {}, token === 0 ? "(" : ")"))),
  );
}

// A table of laws by context: { chart, table } for a figure.
export function matrixOf(title, table, { vocab, order, text }) {
  const contexts = table.map((_, c) => contextName(c, vocab, order));
  const scale = amountScale([0, 1]);
  const [left, top, size] = [90, 40, Math.min(64, Math.max(34, Math.floor(420 / vocab)))];
  const [width, height] = [left + vocab * size + 16, top + table.length * 40 + 10];
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "plot", "aria-label": `${title}: ${table.map((law, c) => `after ${contexts[c] || "anything"}: ${law.map((p) => fixed(p, 2)).join(", ")}`).join("; ")}` });
  for (let v = 0; v < vocab; v += 1) root.append(svg("text", { class: "tick", x: left + (v + 0.5) * size, y: top - 8, "text-anchor": "middle" }, `${v}`));
  root.append(svg("text", { class: "axis", x: left + (vocab * size) / 2, y: 14, "text-anchor": "middle" }, "next token"));
  table.forEach((law, c) => {
    root.append(svg("text", { class: "tick", x: left - 8, y: top + c * 40 + 24, "text-anchor": "end" }, order ? `after ${contexts[c]}` : "always"));
    law.forEach((p, v) => {
      const colour = p === null ? null : scale.colour(p);
      root.append(svg("rect", { x: left + v * size, y: top + c * 40, width: size - 2, height: 38, fill: colour || "none", class: colour ? null : "hollow" }));
      root.append(svg("text", { class: colour ? null : "tick", x: left + (v + 0.5) * size, y: top + c * 40 + 24, "text-anchor": "middle", "font-size": 13, fill: colour ? inkOn(colour) : null }, text(c, v)));
    });
  });
  const columns = [{ label: "context", value: (row) => row.name, head: true }, ...Array.from({ length: vocab }, (_, v) => ({ label: `next ${v}`, value: (row) => row.law[v], text: (row) => fixed(row.law[v], 4), number: true }))];
  return { chart: root, table: { columns, rows: table.map((law, c) => ({ name: contexts[c] || "any", law })) } };
}

