// A figure's state: plain data that its specification bounds, in the page's address and in a widget's trait.
// The same specification (a JSON file beside the figure's module) is read by Python, which refuses what is
// out of bounds; here, where a reader's link must never break a page, it is mended instead.

/** The state in which a figure opens: a preset's values over the fields' own. */
export function initialState(spec, preset = spec.preset) {
  const state = Object.fromEntries(spec.fields.map((f) => [f.name, structuredClone(f.default)]));
  const values = spec.presets?.[preset]?.state ?? {};
  return { ...state, ...structuredClone(values), ...(spec.presets ? { preset } : {}) };
}

const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));

/** `value` as `field` allows it, or undefined where nothing can be made of it. */
export function mendValue(field, value) {
  switch (field.kind) {
    case "number":
    case "integer": {
      const x = typeof value === "string" && value.trim() ? Number(value) : value;
      if (typeof x !== "number" || Number.isNaN(x)) return undefined;
      return clamp(field.kind === "integer" ? Math.round(x) : x, field.min, field.max);
    }
    case "choice":
      return Object.hasOwn(field.options, String(value)) ? String(value) : undefined;
    case "flag":
      return typeof value === "boolean" ? value : undefined;
    case "array":
      return mendArray(field, value, 0);
    default:
      throw new Error(`field ${field.name} is of the unknown kind ${field.kind}`);
  }
}

// Arrays are nested `field.shape.length` deep; each level holds from shape[k][0] to shape[k][1] entries.
function mendArray(field, value, level) {
  if (level === field.shape.length) {
    const x = mendValue({ ...field, kind: "number" }, value);
    return x === undefined ? undefined : x;
  }
  const [least, most] = field.shape[level];
  if (!Array.isArray(value) || value.length < least) return undefined;
  const out = value.slice(0, most).map((part) => mendArray(field, part, level + 1));
  return out.includes(undefined) ? undefined : out;
}

const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/**
 * A state within bounds, made from anything.
 * @returns {{state: object, mended: string[]}} the state, and the labels of what had to be changed
 */
export function cleanState(spec, raw) {
  const given = raw !== null && typeof raw === "object" && !Array.isArray(raw) ? raw : {};
  const known = spec.presets && Object.hasOwn(spec.presets, String(given.preset));
  const state = initialState(spec, known ? String(given.preset) : spec.preset);
  const mended = spec.presets && given.preset !== undefined && !known ? ["preset"] : [];
  for (const field of spec.fields) {
    if (given[field.name] === undefined) continue;
    const value = mendValue(field, given[field.name]);
    if (!equal(value, given[field.name])) mended.push(field.label ?? field.name);
    if (value !== undefined) state[field.name] = value;
  }
  return { state, mended };
}

/**
 * A state as text for an address: the version, the preset, and every field that differs from the preset's.
 * Names and values are joined by ":" and ";"; words stand as they are, numbers and arrays as JSON.
 */
export function stateToText(spec, state) {
  const start = initialState(spec, state.preset);
  const parts = spec.presets && state.preset !== spec.preset ? [`preset:${state.preset}`] : [];
  for (const { name, kind } of spec.fields) {
    if (equal(state[name], start[name])) continue;
    parts.push(`${name}:${kind === "choice" ? state[name] : JSON.stringify(state[name])}`);
  }
  return [spec.version, ...parts].join(";");
}

/** The state that a text describes; null where it is of another version or no state at all. */
export function stateFromText(spec, text) {
  const [version, ...parts] = String(text).split(";");
  if (version !== String(spec.version)) return null;
  const raw = {};
  for (const part of parts) {
    const at = part.indexOf(":");
    const name = part.slice(0, Math.max(at, 0));
    const field = spec.fields.find((f) => f.name === name);
    const value = part.slice(at + 1);
    if (!field || field.kind === "choice") raw[name] = value;
    else {
      try {
        raw[name] = JSON.parse(value);
      } catch {
        raw[name] = null; // cleanState names it among what it mended
      }
    }
  }
  return cleanState(spec, raw);
}

/** The page's address with a figure's state in its query; other figures' states and the anchor stay. */
export function addressWith(href, spec, state) {
  const url = new URL(href);
  const text = stateToText(spec, state);
  const others = url.search.slice(1).split("&").filter((p) => p && !p.startsWith(`${spec.name}=`));
  const readable = encodeURIComponent(text).replace(/%(3A|3B|2C|5B|5D)/g, (c) => decodeURIComponent(c));
  const mine = text === String(spec.version) ? [] : [`${spec.name}=${readable}`];
  url.search = [...others, ...mine].join("&");
  return url.href;
}

/** What the page's address says of a figure, or null. */
export function stateFromAddress(href, spec) {
  const text = new URL(href).searchParams.get(spec.name);
  return text === null ? null : stateFromText(spec, text);
}

/** Whether two states differ in nothing but the named fields (and the name of the preset). */
export function differOnlyIn(a, b, names) {
  return Object.keys(a).every((key) => key === "preset" || names.includes(key) || equal(a[key], b[key]));
}

/** A state drawn at random within bounds, for tests; `random` gives numbers in [0, 1). */
export function randomState(spec, random) {
  const number = (f) => (f.scale === "log" ? f.min * (f.max / f.min) ** random() : f.min + random() * (f.max - f.min));
  const array = (f, level) => {
    if (level === f.shape.length) return random() < 0.05 ? f.max : number(f);
    const [least, most] = f.shape[level];
    return Array.from({ length: least + Math.floor(random() * (most - least + 1)) }, () => array(f, level + 1));
  };
  const presets = Object.keys(spec.presets ?? {});
  const raw = presets.length ? { preset: presets[Math.floor(random() * presets.length)] } : {};
  for (const f of spec.fields) {
    if (f.kind === "choice") raw[f.name] = Object.keys(f.options)[Math.floor(random() * Object.keys(f.options).length)];
    else if (f.kind === "flag") raw[f.name] = random() < 0.5;
    else if (f.kind === "array") raw[f.name] = array(f, 0);
    else raw[f.name] = number(f);
  }
  return cleanState(spec, raw).state;
}
