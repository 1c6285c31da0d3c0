// A heat map that is a table: a link in every cell, arrows move between them, marks have shapes.

import { el, svg } from "./dom.js";
import { inkOn, ramp } from "./colours.js";

export const MARKS = {
  failed: { sign: "\u2715", name: "failed", text: "runs failed" },
  diverged: { sign: "\u25b2", name: "diverged", text: "runs diverged" },
  untrusted: { sign: "\u25c6", name: "untrusted", text: "runs with k-hat above 0.7" },
};

export function marksOf(counts) {
  return Object.keys(MARKS).filter((state) => counts[state] > 0);
}

export function markSigns(counts) {
  return marksOf(counts).map((state) => MARKS[state].sign).join("");
}

export function marksText(counts, of) {
  return marksOf(counts).map((state) => `${counts[state]} of ${of} ${MARKS[state].text}`).join(", ");
}

export function marksLegend() {
  return el(
    "p", { class: "note marks" },
    Object.values(MARKS).map((one) => [el("span", { class: "sign", "aria-hidden": "true" }, one.sign), ` ${one.text}   `]),
  );
}

export function scaleLegend(scale, text) {
  if (!(scale.high > scale.low)) return null;
  const [wide, high] = [120, 10];
  const colours = ramp(scale, 24);
  const bars = colours.map((colour, i) => svg("rect", { x: (i * wide) / colours.length, y: 0, width: wide / colours.length + 0.5, height: high, fill: colour }));
  return el(
    "span", { class: "scale" },
    el("span", {}, `${scale.below ? "\u2264 " : ""}${text(scale.low)}`),
    svg("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": `colours from ${text(scale.low)} to ${text(scale.high)}` }, bars),
    el("span", {}, `${scale.above ? "\u2265 " : ""}${text(scale.high)}`),
  );
}

// One coloured cell: { text, colour, href, label, signs }; null is a gap.
function heatCell(cell, first) {
  const apart = first ? " first" : "";
  if (!cell) return el("td", { class: `gap${apart}` });
  const ink = cell.colour ? inkOn(cell.colour) : null;
  const inside = [cell.text, cell.signs && el("span", { class: "sign" }, ` ${cell.signs}`)];
  return el(
    "td", { class: `${cell.colour ? "heat" : "heat blank"}${apart}`, fillStyle: cell.colour },
    el("a", { href: cell.href, inkStyle: ink, "aria-label": cell.label }, inside),
  );
}

// { groups: [{ name, columns: [{ name, title, onsort, way }] }], sections: [{ name, legend, rows:
//   [{ name, title, cells }] }] }
export function heatTable(map, caption) {
  const two = map.groups.length > 1 || map.groups[0].name;
  const sortHead = (column, first) =>
    el(
      "th", { scope: "col", class: first ? "first" : null, title: column.title, "aria-sort": column.way },
      column.onsort ? el("button", { type: "button", class: "sort", onclick: column.onsort }, column.name, column.way && el("span", { "aria-hidden": "true" }, column.way === "ascending" ? " \u25b2" : " \u25bc")) : column.name,
    );
  const width = 1 + map.groups.reduce((sum, group) => sum + group.columns.length, 0);
  const head = el(
    "thead", {},
    two && el("tr", {}, el("td", {}), map.groups.map((group) => el("th", { scope: "colgroup", colspan: group.columns.length, class: "first" }, group.name))),
    el("tr", {}, el("td", {}), map.groups.map((group) => group.columns.map((column, i) => sortHead(column, i === 0)))),
  );
  const firsts = map.groups.flatMap((group) => group.columns.map((_, i) => i === 0));
  const bodies = map.sections.map((section) =>
    el(
      "tbody", {},
      section.name && el("tr", { class: "section" }, el("th", { colspan: width, scope: "rowgroup" }, el("span", { class: "stay" }, section.name, section.legend))),
      section.rows.map((row) => el("tr", {}, el("th", { scope: "row", title: row.title }, row.name), row.cells.map((cell, i) => heatCell(cell, firsts[i])))),
    ),
  );
  const table = el("table", { class: "heatmap" }, el("caption", { class: "unseen" }, caption), head, bodies);
  table.addEventListener("keydown", moveByArrows);
  table.addEventListener("pointerover", (event) => {
    const spot = event.target.closest("td.heat a");
    if (spot) spot.title = spot.getAttribute("aria-label"); // only once it is pointed at
  });
  return table;
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function moveByArrows(event) {
  const step = STEPS[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...cell.closest("table").querySelectorAll("tbody tr:not(.section)")];
  let [row, column] = [rows.indexOf(cell.parentElement), cell.cellIndex];
  for (;;) {
    row += step[0];
    column += step[1];
    const next = rows[row] && rows[row].cells[column];
    if (!next || column < 1) return;
    const target = next.querySelector("a");
    if (target) {
      event.preventDefault();
      target.focus();
      return;
    }
  }
}

// The same map as a picture, for SVG and PNG.
export function heatPicture(map, title) {
  const [left, cellWidth, cellHeight] = [150, 92, 26];
  const columns = map.groups.flatMap((group) => group.columns.map((column) => ({ ...column, group: group.name })));
  const width = left + columns.length * cellWidth + 10;
  const nodes = [svg("text", { x: 8, y: 20, "font-size": 15, "font-weight": 600, class: "ink" }, title)];
  let y = 34;
  if (map.groups.length > 1 || map.groups[0].name) {
    let x = left;
    for (const group of map.groups) {
      nodes.push(svg("text", { x: x + (group.columns.length * cellWidth) / 2, y: y + 14, "text-anchor": "middle", class: "tick" }, group.name));
      x += group.columns.length * cellWidth;
    }
    y += 20;
  }
  columns.forEach((column, i) => nodes.push(svg("text", { x: left + (i + 0.5) * cellWidth, y: y + 14, "text-anchor": "middle", class: "tick" }, cut(column.name, 14))));
  y += 22;
  for (const section of map.sections) {
    if (section.name) {
      nodes.push(svg("text", { x: 8, y: y + 17, "font-size": 12, "font-weight": 600, class: "ink" }, section.name));
      y += 24;
    }
    for (const row of section.rows) {
      nodes.push(svg("text", { x: left - 8, y: y + 17, "text-anchor": "end", class: "tick" }, cut(row.name, 22)));
      row.cells.forEach((cell, i) => {
        if (!cell) return;
        const at = left + i * cellWidth;
        nodes.push(svg("rect", { x: at, y, width: cellWidth - 1, height: cellHeight - 1, fill: cell.colour || "#ffffff", stroke: cell.colour ? "none" : "#999999" }));
        nodes.push(svg("text", { x: at + cellWidth / 2, y: y + 17, "text-anchor": "middle", "font-size": 12, fill: cell.colour ? inkOn(cell.colour) : "#000000" }, [cell.text, cell.signs].filter(Boolean).join(" ")));
      });
      y += cellHeight;
    }
  }
  const picture = svg("svg", { viewBox: `0 0 ${width} ${y + 10}`, width, height: y + 10, class: "plot offstage" }, nodes);
  document.body.append(picture);
  setTimeout(() => picture.remove(), 5000);
  return picture;
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}\u2026` : text;
}
