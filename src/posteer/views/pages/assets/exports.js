// What a view shows, as files and as text: CSV, Markdown, LaTeX, SVG, PNG.

import { tell } from "./dom.js";

// A table is { columns: [{ label, value(row), text(row)?, href(row)?, number? }], rows, caption }.
function shownIn(column, row) {
  return column.text ? column.text(row) : column.value(row) ?? "";
}

function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+@\t\r]/.test(text) || (/^-/.test(text) && Number.isNaN(Number(text))) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csvOf({ columns, rows }) {
  const lines = [columns.map((column) => csvField(column.label))];
  for (const row of rows) lines.push(columns.map((column) => csvField(column.value(row))));
  return lines.map((line) => line.join(",")).join("\n") + "\n";
}

export function markdownOf({ columns, rows }) {
  const safe = (text) => String(text).replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll("<", "&lt;").replace(/\s+/g, " ");
  const line = (cells) => `| ${cells.map(safe).join(" | ")} |`;
  const rule = `|${columns.map((column) => (column.number ? "--:" : "---")).join("|")}|`;
  return [line(columns.map((c) => c.label)), rule, ...rows.map((row) => line(columns.map((c) => shownIn(c, row))))].join("\n") + "\n";
}

const TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\u2212": "$-$", "\u00b1": "$\\pm$", "<": "$<$", ">": "$>$" };

export function latexOf({ columns, rows }) {
  const line = (cells) => `  ${cells.join(" & ")} \\\\`;
  const kinds = columns.map((column) => (column.number ? "r" : "l")).join("");
  return [
    `\\begin{tabular}{${kinds}}`, "  \\toprule", line(columns.map((c) => plainTex(c.label))), "  \\midrule",
    ...rows.map((row) => line(columns.map((c) => plainTex(shownIn(c, row))))), "  \\bottomrule", "\\end{tabular}",
  ].join("\n") + "\n";
}

function plainTex(text) {
  return [...String(text).replace(/\s+/g, " ")].map((c) => TEX[c] ?? ("&%$#_{}".includes(c) ? `\\${c}` : c)).join("");
}

export function save(name, blob) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
  tell(`${name} is saved`);
}

export function saveText(name, text, type) {
  save(name, new Blob([text], { type: `${type};charset=utf-8` }));
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  tell(`${what} copied`);
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline"];

// A chart that stands alone: styles of the page are written into its nodes.
export function standalone(chart) {
  const clone = chart.cloneNode(true);
  const [from, to] = [[chart, ...chart.querySelectorAll("*")], [clone, ...clone.querySelectorAll("*")]];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of KEPT) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
    to[i].removeAttribute("tabindex");
  });
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  paper.setAttribute("width", "100%");
  paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
  clone.prepend(paper);
  clone.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(clone);
}

export function saveSvg(name, chart) {
  saveText(`${name}.svg`, standalone(chart), "image/svg+xml");
}

export function savePng(name, chart, scale = 2) {
  const image = new Image();
  const { width, height } = chart.viewBox.baseVal;
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * scale, height * scale];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, blob), "image/png");
  };
  image.onerror = () => tell("this browser draws no such picture");
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(chart))}`;
}
