// A cell: all seeds of one model, utility, length and method.

import { el, link } from "./dom.js";
import { SERIES } from "./colours.js";
import { axis, frame, mark } from "./charts.js";
import { fixed, plural, signed } from "./format.js";
import { makeHash } from "./routing.js";
import { dataTable, figure, tools } from "./tables.js";
import { marksText, marksOf } from "./heatmap.js";
import { svg } from "./dom.js";
import { runsTable } from "./view_runs.js";

export function crumbs(...parts) {
  const items = parts.map(([text, href], i) => el("li", {}, href ? link(href, text) : el("span", { "aria-current": i === parts.length - 1 ? "page" : null }, text)));
  return el("nav", { class: "crumbs", "aria-label": "Where this is" }, el("ol", {}, items));
}

export function cellName(cell) {
  return `${cell.label} from ${cell.model}, m = ${cell.length}, ${cell.heading}`;
}

const SHAPE = { failed: "cross", diverged: "triangle", untrusted: "diamond", done: "circle" };

function seedsChart(sweep, cell, width) {
  const shown = cell.runs.filter((i) => sweep.figure("expected_utility", i) !== null);
  const best = shown.map((i) => sweep.figure("optimum", i)).find((v) => v !== null && v !== undefined);
  const printed = cell.published.J?.[0];
  const values = shown.map((i) => sweep.figure("expected_utility", i));
  const more = [best, printed].filter((v) => v !== undefined);
  const x = axis(shown.map((i) => sweep.text("seed", i)), { pad: 0.08 });
  const seeds = [...new Set(shown.map((i) => sweep.text("seed", i)))];
  x.ticks = seeds.length <= 12 ? seeds : x.ticks.filter(Number.isInteger);
  const plot = frame({ width: Math.min(width, 720), height: 260, x, y: axis([...values, ...more], { pad: 0.12 }), xLabel: "seed", yLabel: "J", label: `J of ${shown.length} seeds of ${cellName(cell)}` });
  const line = (value, text, dash) => {
    plot.root.append(svg("line", { class: "ruled", x1: plot.left, x2: plot.left + plot.width, y1: plot.y(value), y2: plot.y(value), "stroke-dasharray": dash }));
    plot.root.append(svg("text", { class: "tick halo", x: plot.left + plot.width - 4, y: plot.y(value) - 4, "text-anchor": "end" }, text));
  };
  if (best !== undefined) line(best, `best prompt ${fixed(best, 3)}`, null);
  if (printed !== undefined) line(printed, `published mean ${fixed(printed, 2)}`, "6 4");
  for (const i of shown) {
    const value = sweep.figure("expected_utility", i);
    const title = `seed ${sweep.text("seed", i)}: J ${fixed(value, 4)}, ${sweep.state(i)}`;
    const spot = svg("a", { href: makeHash("run", {}, [sweep.data.runs[i]]), "aria-label": title }, mark(SHAPE[sweep.state(i)], plot.x(sweep.text("seed", i)), plot.y(value), 5, SERIES[0], title));
    plot.root.append(spot);
  }
  plot.root.setAttribute("role", "group");
  return plot.root;
}

export function cellView(sweep, query, width) {
  const cell = sweep.find(query);
  if (!cell) return el("div", {}, el("h1", { tabindex: -1 }, "No such cell"), el("p", {}, "No run of this sweep is at this address. ", link("#/cells", "All cells")));
  const ours = cell.figure("J");
  const printed = cell.published.J;
  const counts = cell.counts();
  const table = runsTable(sweep, cell.runs, true);
  const facts = [
    ours && ["mean J", `${fixed(ours.mean, 4)}${ours.error === null ? "" : ` \u00b1 ${fixed(ours.error, 4)}`} (standard error over seeds)`],
    printed && ["published", `${fixed(printed[0], 2)}${printed[1] === null ? "" : ` \u00b1 ${fixed(printed[1], 2)}`}${ours ? `; ours is ${signed(ours.mean - printed[0], 3)}` : ""}`],
    ["method", cell.method],
    ["utility", cell.utility],
    marksOf(counts).length && ["to be known", marksText(counts, cell.runs.length)],
  ].filter(Boolean);
  const beside = sweep.cells.filter((other) => other.model === cell.model && other.utility === cell.utility && other.length === cell.length && other !== cell);
  return el(
    "div", {},
    crumbs(["Tables", makeHash("cells", { model: cell.model })], [cellName(cell), null]),
    el("h1", { tabindex: -1 }, cellName(cell)),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ours && figure("seeds", "J by seed", seedsChart(sweep, cell, width), runsTable(sweep, cell.runs, true)),
    el("section", {}, el("div", { class: "bar" }, el("h2", {}, plural(cell.runs.length, "run")), tools("cell", () => table)), dataTable(table, { caption: "runs of this cell" })),
    beside.length > 0 && el("section", {}, el("h2", {}, "Other methods here"), el("ul", { class: "links" }, beside.map((other) => el("li", {}, link(makeHash("cell", other.query()), `${other.heading}: ${fixed(other.figure("J")?.mean, 3) || "no J"}`))))),
  );
}
