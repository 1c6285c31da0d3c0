// Figures as people read them.

const MINUS = "\u2212";
const WHOLE = new Intl.NumberFormat("en"); // to make one for each figure takes long

export function signless(text) {
  return text.replace("-", MINUS);
}

export function fixed(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  const text = value.toFixed(digits);
  return signless(Number(text) === 0 ? text.replace("-", "") : text);
}

export function significant(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return signless(value.toExponential(digits - 1));
  return signless(String(Number(value.toPrecision(digits))));
}

export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  return signless(WHOLE.format(Math.round(value)));
}

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  const size = Math.abs(value);
  if (size >= 999500) return `${significant(value / 1e6)} M`;
  if (size >= 9999.5) return `${significant(value / 1e3)} k`;
  return count(value);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  if (seconds < 0.0995) return `${significant(seconds * 1000, 2)} ms`;
  if (seconds < 99.5) return `${significant(seconds, seconds < 1 ? 2 : 3)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  return `${fixed(seconds / 3600, 1)} h`;
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function signed(value, digits) {
  const text = fixed(value, digits);
  return value > 0 && Number(value.toFixed(digits)) !== 0 ? `+${text}` : text;
}

export function listed(values, most = 6) {
  const shown = values.slice(0, most).join(", ");
  return values.length > most ? `${shown} and ${values.length - most} more` : shown;
}

export function quoted(text) {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}
