// Tables that sort, and the tools that stand over tables and charts.

import { el, link } from "./dom.js";
import { count } from "./format.js";
import { csvOf, markdownOf, latexOf, saveText, saveSvg, savePng, copy } from "./exports.js";

// Buttons behind one word: what is shown, as a file or as text.
export function tools(name, table, chart = null) {
  const button = (label, act) => el("button", { type: "button", onclick: act }, label);
  return el(
    "details", { class: "tools" },
    el("summary", {}, "Export", el("span", { class: "unseen" }, ` ${name}`)),
    el(
      "div", { class: "choices" },
      button("Save CSV", () => saveText(`${name}.csv`, csvOf(table()), "text/csv")),
      chart && button("Save SVG", () => saveSvg(name, chart())),
      chart && button("Save PNG", () => savePng(name, chart())),
      button("Copy Markdown", () => copy(markdownOf(table()), "Markdown")),
      button("Copy LaTeX", () => copy(latexOf(table()), "LaTeX")),
    ),
  );
}

function compareValues(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined || a === "") return 1;
  if (b === null || b === undefined || b === "") return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

export function sorted(rows, value, direction) {
  const keyed = rows.map((row, i) => [value(row), i, row]);
  const missing = (v) => v === null || v === undefined || v === "";
  keyed.sort((a, b) => {
    const order = compareValues(a[0], b[0]);
    const turn = missing(a[0]) || missing(b[0]) ? 1 : direction;
    return order * turn || a[1] - b[1];
  });
  return keyed.map((entry) => entry[2]);
}

function cellOfTable(column, row) {
  const text = column.text ? column.text(row) : column.value(row) ?? "";
  const href = column.href && column.href(row);
  const inside = column.node ? column.node(row) : href ? link(href, text) : text;
  const attributes = { class: column.number ? "number" : column.class };
  return column.head ? el("th", { ...attributes, scope: "row" }, inside) : el("td", attributes, inside);
}

// A table whose heads sort it. `state` ({ sort, direction }) and `onsort` let an address hold the
// order; without them the table keeps it itself. Only `most` rows are drawn at first.
export function dataTable(table, { caption, most = 200, state = null, onsort = null, wide = false } = {}) {
  const own = state || { sort: null, direction: 1 };
  const holder = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption });
  let shown = most;

  function order(column) {
    const again = own.sort === column.label;
    const next = !again ? { sort: column.label, direction: column.number ? -1 : 1 }
      : own.direction === (column.number ? -1 : 1) ? { sort: column.label, direction: -own.direction }
      : { sort: null, direction: 1 };
    Object.assign(own, next);
    if (onsort) onsort(next);
    else draw();
  }

  function head(column) {
    const active = own.sort === column.label;
    const way = active ? (own.direction > 0 ? "ascending" : "descending") : null;
    const mark = active ? (own.direction > 0 ? " \u25b2" : " \u25bc") : "";
    return el(
      "th", { scope: "col", class: column.number ? "number" : null, "aria-sort": way },
      el("button", { type: "button", class: "sort", onclick: () => order(column) }, column.label, el("span", { "aria-hidden": "true" }, mark)),
    );
  }

  function draw() {
    const by = table.columns.find((column) => column.label === own.sort);
    const rows = by ? sorted(table.rows, by.value, own.direction) : table.rows;
    const body = el("tbody", {}, rows.slice(0, shown).map((row) => el("tr", { class: table.rowClass && table.rowClass(row) }, table.columns.map((column) => cellOfTable(column, row)))));
    const rest = rows.length - shown;
    holder.replaceChildren(
      el("table", { class: wide ? "data wide" : "data" }, caption && el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, table.columns.map(head))), body),
    );
    if (rest > 0) {
      const more = () => {
        shown += 1000;
        draw();
      };
      holder.append(el("p", {}, el("button", { type: "button", onclick: more }, `Show ${count(Math.min(rest, 1000))} more of ${count(rows.length)}`)));
    }
  }

  draw();
  return holder;
}

// A chart with its tools and the table behind it.
export function figure(name, title, chart, table, note = null) {
  return el(
    "figure", { class: "chart" },
    el("div", { class: "bar" }, el("figcaption", {}, title), tools(name, () => table, () => chart)),
    chart,
    note && el("p", { class: "note" }, note),
    el("details", { class: "behind" }, el("summary", {}, "Table"), dataTable(table, { caption: title, most: 100 })),
  );
}

// A chart that is drawn again and again, by `show(chart, table)`; its table, a function that makes
// it, is called when somebody opens or exports it. One that is not `drawn` is no picture to save.
export function liveFigure(name, title, { drawn: picture = true } = {}) {
  let [chart, table] = [null, null];
  const [holder, rows] = [el("div", {}), el("div", {})];
  const note = el("p", { class: "note" });
  const behind = el("details", { class: "behind" }, el("summary", {}, "Table"), rows);
  const fillTable = () => rows.replaceChildren(...(behind.open && table ? [dataTable(table(), { caption: title, most: 100 })] : []));
  behind.addEventListener("toggle", fillTable);
  const node = el("figure", { class: "chart", hidden: true, id: `live-${name}` }, el("div", { class: "bar" }, el("figcaption", {}, title), tools(name, () => table(), picture ? () => (chart.matches("svg") ? chart : chart.querySelector("svg")) : null)), holder, note, behind);
  return {
    node,
    show(drawn, makeTable, text = "") {
      [chart, table] = [drawn, makeTable];
      node.hidden = !drawn;
      holder.replaceChildren(...(drawn ? [drawn] : []));
      note.textContent = text;
      note.hidden = !text;
      if (behind.open) fillTable();
    },
  };
}
