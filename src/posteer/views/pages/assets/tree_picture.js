// What may follow a prompt, as a tree: each column one token further, each box as high as it is
// likely; the last ones are shaded by their utility.

import { svg } from "./dom.js";
import { amountScale, inkOn } from "./colours.js";
import { fixed } from "./format.js";

function wordOf(index, vocab, depth, names) {
  const tokens = [];
  for (let i = 0; i < depth; i += 1) {
    tokens.unshift(index % vocab);
    index = Math.floor(index / vocab);
  }
  return tokens.map((token) => names[token] ?? String(token));
}

export function treePicture(levels, utilities, { vocab, names, width, label, height = 330 }) {
  const [top, foot] = [6, 24];
  const columns = levels.length;
  const wide = width / columns;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "plot", "aria-label": label });
  const scale = utilities ? amountScale(spread(utilities)) : null;
  const room = height - top - foot;
  levels.forEach((level, column) => {
    let y = top;
    level.forEach((p, index) => {
      const high = p * room;
      const last = column === columns - 1 && scale && utilities.length === level.length;
      const colour = last ? scale.colour(utilities[index]) : null;
      const word = wordOf(index, vocab, column + 1, names);
      if (high > 0.3) {
        root.append(svg("rect", { x: column * wide, y, width: wide - 2, height: Math.max(high - 1, 0.3), fill: colour || "none", class: colour ? null : `box b${Math.min(index % vocab, 5)}` }, svg("title", {}, `${word.join("")}: ${fixed(p, 4)}${last ? `, utility ${fixed(utilities[index], 3)}` : ""}`)));
        if (high > 14) root.append(svg("text", { x: column * wide + 6, y: y + high / 2 + 4, class: colour ? null : "tick strong", "font-size": 12, fill: colour ? inkOn(colour) : null }, `${last ? word.join(vocab > 10 ? " " : "") : word.at(-1)}  ${fixed(p, 2)}`));
      }
      y += high;
    });
    root.append(svg("text", { class: "axis", x: column * wide + wide / 2, y: height - 6, "text-anchor": "middle" }, `token ${column + 1}`));
  });
  return root;
}

// The ends of a scale: all utilities, or something around the one there is.
function spread(utilities) {
  const [low, high] = [Math.min(...utilities), Math.max(...utilities)];
  return high > low ? [low, high, low, high] : [low - 1, high];
}

export function treeTable(levels, utilities, { vocab, names }) {
  const last = levels.at(-1);
  const rows = last.map((p, index) => ({ word: wordOf(index, vocab, levels.length, names).join(vocab > 10 ? " " : ""), p, u: utilities && utilities.length === last.length ? utilities[index] : null }));
  const columns = [{ label: "continuation", value: (r) => r.word, head: true }, { label: "probability", value: (r) => r.p, text: (r) => fixed(r.p, 5), number: true }, { label: "utility", value: (r) => r.u, text: (r) => (r.u === null ? "" : fixed(r.u, 4)), number: true }];
  return { columns, rows };
}
