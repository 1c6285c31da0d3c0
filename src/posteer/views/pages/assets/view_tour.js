// A tour for someone who has not read the paper, with the pictures themselves.

import { el } from "./dom.js";

export async function tourView(app) {
  return { node: el("div", {}, el("h1", { tabindex: -1 }, "Tour")), update() {} };
}
