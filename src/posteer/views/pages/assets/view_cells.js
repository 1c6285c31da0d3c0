// The tables of a sweep as heat maps: ours, published, difference.

import { el } from "./dom.js";
import { amountScale, differenceScale } from "./colours.js";
import { count, duration, fixed, plural, short, signed } from "./format.js";
import { makeHash } from "./routing.js";
import { heatPicture, heatTable, marksLegend, marksOf, markSigns, marksText, scaleLegend, MARKS } from "./heatmap.js";
import { tools } from "./tables.js";
import { STATISTICS } from "./data.js";

export function statisticText(name, value) {
  if (name === "tokens") return short(value);
  if (name === "seconds") return duration(value);
  return fixed(value, STATISTICS[name].digits);
}

// What a cell shows of a statistic: { value, error } or null.
export function shownFigure(cell, statistic, show) {
  const ours = cell.figure(statistic);
  const printed = cell.published[STATISTICS[statistic].published];
  if (show === "published") return printed ? { value: printed[0], error: printed[1] } : null;
  if (show === "difference") return printed && ours ? { value: ours.mean - printed[0], error: null } : null;
  return ours ? { value: ours.mean, error: ours.error } : null;
}

function displayed(statistic, show, figure) {
  if (show === "difference") return signed(figure.value, statistic === "J" || statistic === "ess" ? 3 : 1);
  if (show === "published") return fixed(figure.value, statistic === "rank" ? 1 : 2);
  return statisticText(statistic, figure.value);
}

function heat(cell, statistic, show, scale) {
  const figure = shownFigure(cell, statistic, show);
  const counts = cell.counts();
  const signs = markSigns(counts);
  if (!figure && !signs) return null;
  const text = figure ? displayed(statistic, show, figure) : signs.startsWith(MARKS.failed.sign) ? "" : "\u2013";
  const plain = [cell.model, cell.label, `m=${cell.length}`, cell.heading].join(", ");
  const error = figure && figure.error ? ` \u00b1 ${statisticText(statistic, figure.error)}` : "";
  const label = `${plain}: ${STATISTICS[statistic].short} ${text || "none"}${error}, ${plural(cell.runs.length, "run")}${signs ? `, ${marksText(counts, cell.runs.length)}` : ""}`;
  return { text, label, signs, colour: figure ? scale.colour(figure.value) : null, href: makeHash("cell", cell.query()) };
}

function uniqueBy(cells, pick) {
  return [...new Set(cells.map(pick))];
}

function placeIn(order) {
  const place = new Map(order.map((value, i) => [value, i]));
  return (a, b) => place.get(a) - place.get(b);
}

function scaleFor(cells, statistic, show) {
  const values = cells.map((cell) => shownFigure(cell, statistic, show)).filter(Boolean).map((figure) => figure.value);
  return show === "difference" ? differenceScale(values) : amountScale(values, STATISTICS[statistic]);
}

// One map of one model: rows are utilities by family, columns methods by length.
function mapOf(sweep, cells, { statistic, show, sort, direction }, onsort) {
  const lengths = uniqueBy(cells, (cell) => cell.length).sort((a, b) => a - b);
  const methods = uniqueBy(cells, (cell) => cell.method).sort(placeIn(sweep.values("method")));
  const columns = [];
  const groups = lengths.map((length) => {
    const own = methods.filter((method) => cells.some((cell) => cell.length === length && cell.method === method));
    return {
      name: `m = ${length}`,
      columns: own.map((method) => {
        const key = `${length} ${method}`;
        columns.push({ key, length, method });
        const way = sort === key ? (direction > 0 ? "ascending" : "descending") : null;
        return { name: sweep.heading(method), title: method, way, onsort: () => onsort(key) };
      }),
    };
  });
  const byPlace = new Map(cells.map((cell) => [`${cell.utility}\u0000${cell.length} ${cell.method}`, cell]));
  const families = uniqueBy(cells, (cell) => cell.family).sort(placeIn(sweep.families()));
  const wanted = statistic === "J" || show === "difference" ? families.map((family) => [family, cells.filter((cell) => cell.family === family)]) : families.map((family) => [family, cells.filter((cell) => cell.family === family), cells]);
  const sections = wanted.map(([family, members, scaled], i) => {
    const scale = scaleFor(scaled || members, statistic, show);
    let utilities = uniqueBy(members, (cell) => cell.utility).sort(placeIn(sweep.values("utility")));
    if (sort) utilities = sortedBy(utilities, (utility) => byPlace.get(`${utility}\u0000${sort}`), statistic, show, direction);
    const text = (value) => (show === "difference" ? displayed(statistic, show, { value }) : statisticText(statistic, value));
    return {
      name: family,
      legend: (i === 0 || !scaled) && scaleLegend(scale, text),
      rows: utilities.map((utility) => ({
        name: sweep.label(utility), title: utility,
        cells: columns.map(({ key }) => {
          const cell = byPlace.get(`${utility}\u0000${key}`);
          return cell ? heat(cell, statistic, show, scale) : null;
        }),
      })),
    };
  });
  return { groups, sections };
}

function sortedBy(utilities, cellOf, statistic, show, direction) {
  const value = (utility) => {
    const cell = cellOf(utility);
    const figure = cell && shownFigure(cell, statistic, show);
    return figure ? figure.value : null;
  };
  return [...utilities].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return (x - y) * direction;
  });
}

export function cellsTable(sweep, cells, statistic) {
  const published = STATISTICS[statistic].published;
  const columns = [
    { label: "model", value: (c) => c.model },
    { label: "utility", value: (c) => c.utility, text: (c) => c.label },
    { label: "length", value: (c) => c.length, number: true },
    { label: "horizon", value: (c) => c.horizon, number: true },
    { label: "method", value: (c) => c.method, text: (c) => c.heading },
    { label: STATISTICS[statistic].short, value: (c) => c.figure(statistic)?.mean ?? null, text: (c) => statisticText(statistic, c.figure(statistic)?.mean), number: true },
    { label: "standard error", value: (c) => c.figure(statistic)?.error ?? null, text: (c) => statisticText(statistic, c.figure(statistic)?.error), number: true },
    { label: "published", value: (c) => c.published[published]?.[0] ?? null, text: (c) => fixed(c.published[published]?.[0], 2), number: true },
    { label: "published standard error", value: (c) => c.published[published]?.[1] ?? null, text: (c) => fixed(c.published[published]?.[1], 2), number: true },
    { label: "runs", value: (c) => c.runs.length, number: true },
    ...Object.keys(MARKS).map((state) => ({ label: state, value: (c) => c.count(state), number: true })),
  ];
  const known = sweep.published ? columns : columns.filter((column) => !column.label.startsWith("published"));
  return { columns: known, rows: cells };
}

export function cellsView(sweep, query, change) {
  const cells = sweep.filtered(query);
  const statistic = query.statistic in STATISTICS ? query.statistic : "J";
  const show = ["published", "difference"].includes(query.show) ? query.show : "ours";
  const direction = query.direction === "ascending" ? 1 : -1;
  const onsort = (key) => {
    const again = query.sort === key;
    change(again && direction === 1 ? { sort: "", direction: "" } : { sort: key, direction: again ? "ascending" : "descending" });
  };
  const places = uniqueBy(cells, (cell) => `${cell.model}\u0000${cell.horizon}\u0000${cell.budget ?? ""}`);
  const title = { ours: STATISTICS[statistic].label, published: `${STATISTICS[statistic].label}, published`, difference: `${STATISTICS[statistic].label}: ours minus published` }[show];
  const noted = cells.some((cell) => marksOf(cell.counts()).length);
  const blocks = places.map((place) => {
    const [model, horizon, budget] = place.split("\u0000");
    const own = cells.filter((cell) => `${cell.model}\u0000${cell.horizon}\u0000${cell.budget ?? ""}` === place);
    const shown = own.filter((cell) => shownFigure(cell, statistic, show) || markSigns(cell.counts()));
    const heading = [model, sweep.values("horizon").length > 1 && `horizon ${horizon}`, budget && `at most ${count(Number(budget))} model tokens`].filter(Boolean).join(", ");
    if (!shown.length) return el("section", {}, el("h2", {}, heading), el("p", { class: "note" }, show === "ours" ? `No run here has this figure.` : "The paper prints no such figure for these cells."));
    const map = mapOf(sweep, shown, { statistic, show, sort: query.sort, direction }, onsort);
    const name = `${model}-${statistic}-${show}`.replace(/[^\w.-]+/g, "-");
    return el(
      "section", {},
      el("div", { class: "bar" }, el("h2", {}, heading), tools(name, () => cellsTable(sweep, shown, statistic), () => heatPicture(map, `${heading}: ${title}`))),
      el("div", { class: "scroll late" }, heatTable(map, `${heading}: ${title}`)),
    );
  });
  const bright = show === "difference" ? "Purple: ours is higher; orange: lower." : "Bright is better.";
  return el(
    "div", {},
    el("h1", { tabindex: -1 }, title),
    el("p", { class: "note" }, `Means over seeds of ${plural(cells.length, "cell")}; a cell opens its seeds. ${bright}`),
    noted && marksLegend(),
    blocks,
    !cells.length && el("p", { class: "empty" }, "No cell is left by these filters."),
  );
}
