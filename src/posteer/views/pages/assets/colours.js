// Two scales that the colour-blind can read: cividis for amounts, purple to orange for differences.

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const PURPLE_ORANGE = ["#b35806", "#e08214", "#fdb863", "#fee0b6", "#f7f7f7", "#d8daeb", "#b2abd2", "#8073ac", "#542788"];

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function between(stops, share) {
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  const [low, high] = [channels(stops[at]), channels(stops[at + 1])];
  const mixed = low.map((value, i) => Math.round(value + (high[i] - value) * (place - at)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

export function luminance(hex) {
  const [r, g, b] = channels(hex).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function inkOn(hex) {
  return luminance(hex) > 0.179 ? "#000000" : "#ffffff";
}

export function quantile(sorted, share) {
  if (!sorted.length) return NaN;
  const place = share * (sorted.length - 1);
  const at = Math.floor(place);
  const next = Math.min(at + 1, sorted.length - 1);
  return sorted[at] + (sorted[next] - sorted[at]) * (place - at);
}

// A scale for some values: from the 5th to the 95th percentile, so that outliers do not swallow all
// colours; `below` and `above` say whether any lie beyond. `better`: bright is better.
export function amountScale(values, { log = false, better = "high" } = {}) {
  const usable = values.filter((v) => Number.isFinite(v) && (!log || v > 0)).sort((a, b) => a - b);
  let [low, high] = [quantile(usable, 0.05), quantile(usable, 0.95)];
  if (!usable.length) [low, high] = [0, 1];
  const to = (v) => (log ? Math.log(Math.max(v, low)) : v);
  const span = to(high) - to(low);
  const share = (v) => {
    const place = span > 0 ? (to(v) - to(low)) / span : 0.5;
    return better === "low" ? 1 - place : place;
  };
  const beyond = { below: usable[0] < low, above: usable.at(-1) > high };
  return { low, high, better, ...beyond, colour: (v) => between(CIVIDIS, share(v)), kind: "amount" };
}

export function differenceScale(values) {
  const sizes = values.filter(Number.isFinite).map(Math.abs).sort((a, b) => a - b);
  const most = sizes.length ? Math.max(quantile(sizes, 0.95), 1e-9) : 1;
  const beyond = sizes.length > 0 && sizes.at(-1) > most;
  const colour = (v) => between(PURPLE_ORANGE, 0.5 + v / most / 2);
  return { low: -most, high: most, below: beyond, above: beyond, colour, kind: "difference" };
}

export function ramp(scale, n = 9) {
  const stops = scale.kind === "difference" ? PURPLE_ORANGE : CIVIDIS;
  const own = Array.from({ length: n }, (_, i) => between(stops, i / (n - 1)));
  return scale.better === "low" ? own.reverse() : own;
}

// Methods: Okabe and Ito's colours, each with a shape of its own.
// The style sheet has a lighter one of each for dark paper.
export const SERIES = Array.from({ length: 7 }, (_, i) => `var(--series-${i})`);
export const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring", "wedge"];
