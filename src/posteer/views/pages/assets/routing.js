// A view's address: #/cells?statistic=J&model=urn. Readable, shareable; back works.

export function parseHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const fields = {};
  for (const pair of query.split("&").filter(Boolean)) {
    const [name, ...rest] = pair.split("=");
    fields[decoded(name)] = decoded(rest.join("="));
  }
  return { view: parts[0] || "overview", path: parts.slice(1), query: fields };
}

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

const encodings = new Map();

function encoded(text) {
  let found = encodings.get(text);
  if (found === undefined) {
    found = encodeURIComponent(String(text)).replaceAll("%20", "+").replace(/%(3A|2C|2F|5B|5D)/g, decodeURIComponent);
    encodings.set(text, found);
  }
  return found;
}

export function makeHash(view, query = {}, path = []) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = pairs.map(([name, value]) => `${encoded(name)}=${encoded(value)}`).join("&");
  return `#/${[view, ...path].map(encoded).join("/")}${text ? `?${text}` : ""}`;
}

export function go(hash) {
  location.hash = hash;
}

// Without an entry in the history: for what is typed letter by letter.
export function replaceHash(hash) {
  history.replaceState(history.state, "", hash);
}
