// Nodes from values. Texts become text nodes: nothing that is shown is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "fillStyle") node.style.backgroundColor = value;
    else if (name === "inkStyle") node.style.color = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function link(href, ...children) {
  return el("a", { href }, ...children);
}

let told = null;

export function tell(text) {
  if (!told) {
    told = el("div", { class: "told", role: "status", "aria-live": "polite" });
    document.body.append(told);
  }
  told.textContent = text;
  told.classList.add("on");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => told.classList.remove("on"), 2500);
}
