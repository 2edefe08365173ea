// Plots in SVG: colours come from the style sheet, so that a page's theme changes them without a redraw.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `on...` attributes are listeners. */
export function element(name, attributes = {}, ...children) {
  const svg = /^(svg|g|path|line|circle|rect|text|title|image|clipPath|defs|use)$/.test(name);
  const el = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children);
  return el;
}

/** Round numbers for ticks between two ends, at most about `count`. */
export function ticksBetween(lo, hi, count = 5) {
  const span = hi - lo;
  if (!(span > 0) || !Number.isFinite(span)) return [];
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = power * [1, 2, 5, 10].find((m) => span / (m * power) <= count);
  const out = [];
  for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + 1e-9 * step; k++) out.push(k * step);
  return out;
}

/** A number for a tick or a sentence: three figures, a true minus sign, powers of ten where it must be. */
export function shortNumber(x, figures = 3) {
  if (!Number.isFinite(x)) return x > 0 ? "∞" : x < 0 ? "−∞" : "undefined";
  const a = Math.abs(x);
  const text = a !== 0 && (a >= 1e5 || a < 1e-3) ? x.toExponential(Math.max(figures - 2, 0)) : String(Number(x.toPrecision(figures)));
  return text.replace("e+", "e").replaceAll("-", "−");
}

const LINEAR = { of: (x) => x, ticks: ticksBetween, text: (x) => shortNumber(x) };
const LOG = {
  of: (x) => Math.log10(Math.max(x, 1e-300)),
  ticks: (lo, hi) => {
    const every = Math.max(1, Math.ceil((hi - lo) / 5));
    return Array.from({ length: Math.max(0, Math.floor(hi) - Math.ceil(lo) + 1) }, (_, k) => Math.ceil(lo) + k).filter(
      (k) => k % every === 0,
    );
  },
  text: (k) => (k >= 0 && k <= 4 ? String(10 ** k) : `10${[...String(k)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`),
};

let plots = 0;

/**
 * A pair of axes.
 * @param {object} o width, height (in units of the drawing), x: [lo, hi], y: [lo, hi], xlabel, ylabel, title,
 *   xlog, ylog, equal (the same scale on both axes), label (what the picture is, for a screen reader), ticks
 */
export function axes(o) {
  const width = o.width ?? 340, height = o.height ?? 280;
  const pad = { left: o.ticks === false ? 8 : 46, right: 10, top: o.title ? 24 : 10, bottom: o.ticks === false ? 8 : 38 };
  const inner = [width - pad.left - pad.right, height - pad.top - pad.bottom];
  const scales = [o.xlog ? LOG : LINEAR, o.ylog ? LOG : LINEAR];
  const id = `live-clip-${plots++}`;
  const frame = element("g", { class: "frame" });
  const marks = element("g", { "clip-path": `url(#${id})` });
  const top = element("g", {}); // handles and words: not cut at the frame
  const clip = element("clipPath", { id }, element("rect", { x: pad.left, y: pad.top, width: inner[0], height: inner[1] }));
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": o.label }, element("defs", {}, clip), frame, marks, top);
  const known = new Map();
  let box; // [x0, x1, y0, y1] on the scales

  const plot = {
    svg, marks, top,
    /** Set the ranges; draws frame, ticks and grid anew if they changed. */
    range(x, y) {
      let [x0, x1, y0, y1] = [...x.map(scales[0].of), ...y.map(scales[1].of)];
      if (!(x1 > x0)) [x0, x1] = [x0 - 1, x0 + 1];
      if (!(y1 > y0)) [y0, y1] = [y0 - 1, y0 + 1];
      if (o.equal) {
        const unit = Math.max((x1 - x0) / inner[0], (y1 - y0) / inner[1]) / 2;
        const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2];
        [x0, x1, y0, y1] = [cx - unit * inner[0], cx + unit * inner[0], cy - unit * inner[1], cy + unit * inner[1]];
      }
      if (box && [x0, x1, y0, y1].every((b, k) => b === box[k])) return;
      box = [x0, x1, y0, y1];
      drawFrame();
    },
    px: (x) => pad.left + ((scales[0].of(x) - box[0]) / (box[1] - box[0])) * inner[0],
    py: (y) => pad.top + ((box[3] - scales[1].of(y)) / (box[3] - box[2])) * inner[1],
    /** From a pointer event to the plane of a linear plot. */
    at(event) {
      const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [
        box[0] + ((p.x - pad.left) / inner[0]) * (box[1] - box[0]),
        box[3] - ((p.y - pad.top) / inner[1]) * (box[3] - box[2]),
      ];
    },
    box: () => box,
    /** The element of a name, made once: marks are updated, never rebuilt. */
    mark(key, name, attributes, parent = marks) {
      let el = known.get(key);
      if (!el) known.set(key, (el = element(name, {})));
      if (el.parentNode !== parent) parent.append(el);
      for (const [k, v] of Object.entries(attributes)) if (el.getAttribute(k) !== String(v)) el.setAttribute(k, v);
      return el;
    },
    /** A curve through `count` points xs[k], ys[k]; points that are not finite are left out. */
    line(key, className, xs, ys, count = xs.length) {
      let d = "", pen = "M";
      for (let k = 0; k < count; k++) {
        const [x, y] = [clampPixel(plot.px(xs[k])), clampPixel(plot.py(ys[k]))];
        if (Number.isNaN(x) || Number.isNaN(y)) continue;
        d += `${pen}${x.toFixed(2)} ${y.toFixed(2)}`;
        pen = "L";
      }
      return plot.mark(key, "path", { class: `line ${className}`, d });
    },
    /** A ray from the origin in the direction (dx, dy), to beyond the frame. */
    ray(key, className, dx, dy) {
      const size = Math.hypot(dx, dy);
      const far = 4 * Math.max(...box.map(Math.abs));
      const [x, y] = size > 0 && Number.isFinite(size) ? [(dx / size) * far, (dy / size) * far] : [0, 0];
      return plot.line(key, className, [0, x], [0, y]);
    },
    dot(key, className, x, y, r = 4) {
      return plot.mark(key, "circle", { class: className, cx: clampPixel(plot.px(x)), cy: clampPixel(plot.py(y)), r });
    },
    bar(key, className, x0, x1, y0, y1) {
      const [a, b] = [plot.px(x0), plot.px(x1)], [c, d] = [plot.py(y1), plot.py(y0)];
      return plot.mark(key, "rect", { class: className, x: Math.min(a, b), y: Math.min(c, d), width: Math.abs(b - a), height: Math.abs(d - c) });
    },
    text(key, className, x, y, words, dx = 0, dy = 0) {
      const el = plot.mark(key, "text", { class: className, x: plot.px(x) + dx, y: plot.py(y) + dy }, top);
      if (el.textContent !== words) el.textContent = words;
      return el;
    },
    /** Take away marks whose name begins with a prefix and that are not kept. */
    drop(prefix, keep = new Set()) {
      for (const [key, el] of known) {
        if (!key.startsWith(prefix) || keep.has(key)) continue;
        el.remove();
        known.delete(key);
      }
    },
  };

  function drawFrame() {
    const [x0, x1, y0, y1] = box;
    const [left, bottom, right] = [pad.left, pad.top + inner[1], pad.left + inner[0]];
    const across = (x) => left + ((x - x0) / (x1 - x0)) * inner[0];
    const up = (y) => bottom - ((y - y0) / (y1 - y0)) * inner[1];
    const parts = [];
    if (o.ticks !== false) {
      for (const x of scales[0].ticks(x0, x1)) {
        parts.push(element("line", { class: "grid", x1: across(x), x2: across(x), y1: pad.top, y2: bottom }));
        parts.push(element("text", { class: "tick", x: across(x), y: bottom + 14, "text-anchor": "middle" }, scales[0].text(x)));
      }
      for (const y of scales[1].ticks(y0, y1)) {
        parts.push(element("line", { class: "grid", x1: left, x2: right, y1: up(y), y2: up(y) }));
        parts.push(element("text", { class: "tick", x: left - 5, y: up(y) + 4, "text-anchor": "end" }, scales[1].text(y)));
      }
    }
    parts.push(element("path", { class: "axis", d: `M${left} ${pad.top}V${bottom}H${right}` }));
    if (o.title) parts.push(element("text", { class: "title", x: left + inner[0] / 2, y: 15, "text-anchor": "middle" }, o.title));
    if (o.xlabel) parts.push(element("text", { class: "label", x: left + inner[0] / 2, y: height - 6, "text-anchor": "middle" }, o.xlabel));
    if (o.ylabel) {
      const at = `translate(11 ${pad.top + inner[1] / 2}) rotate(-90)`;
      parts.push(element("text", { class: "label", transform: at, "text-anchor": "middle" }, o.ylabel));
    }
    frame.replaceChildren(...parts);
  }

  plot.range(o.x ?? [0, 1], o.y ?? [0, 1]);
  return plot;
}

// Far beyond the frame renderers lose precision, and infinity is no coordinate.
function clampPixel(p) {
  return Number.isNaN(p) ? p : Math.max(-1e4, Math.min(1e4, p));
}

/**
 * A point that mouse, touch and arrow keys move.
 * @param {object} o key, className, x, y, label (its name), move(x, y), remove() for the Delete key, size
 */
export function handle(plot, o) {
  const g = plot.mark(o.key, "g", { class: `handle ${o.className}`, tabindex: 0, role: "button", "aria-roledescription": "movable point" }, plot.top);
  g.setAttribute("transform", `translate(${clampPixel(plot.px(o.x))} ${clampPixel(plot.py(o.y))})`);
  g.setAttribute("aria-label", `${o.label}, at ${shortNumber(o.x)}, ${shortNumber(o.y)}. Arrow keys move it${o.remove ? ", Delete removes it" : ""}.`);
  if (!g.firstChild) {
    g.append(element("circle", { class: "target", r: 16 }), element("path", { class: "shape", d: SHAPES[o.shape] ?? SHAPES.dot }));
    const drag = (e) => {
      const [x, y] = plot.at(e);
      g.live.move(x, y);
    };
    g.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      e.preventDefault();
      g.focus();
      g.setPointerCapture(e.pointerId);
      g.addEventListener("pointermove", drag);
    });
    const drop = () => g.removeEventListener("pointermove", drag);
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) g.addEventListener(end, drop);
    g.addEventListener("keydown", (e) => {
      const b = plot.box(), unit = ((b[1] - b[0]) / 100) * (e.shiftKey ? 5 : 1);
      const step = { ArrowLeft: [-unit, 0], ArrowRight: [unit, 0], ArrowUp: [0, unit], ArrowDown: [0, -unit] }[e.key];
      if (step) g.live.move(g.live.x + step[0], g.live.y + step[1]);
      else if ((e.key === "Delete" || e.key === "Backspace") && g.live.remove) g.live.remove();
      else return;
      e.preventDefault();
    });
  }
  const shape = SHAPES[o.shape] ?? SHAPES.dot;
  if (g.lastChild.getAttribute("d") !== shape) g.lastChild.setAttribute("d", shape);
  g.live = o;
  return g;
}

const SHAPES = {
  dot: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
  diamond: "M0-7L6 0L0 7L-6 0z",
  square: "M-5-5H5V5H-5z",
  star: "M0-8L2-2.6L7.6-2.5L3.2 1L4.7 6.5L0 3.3L-4.7 6.5L-3.2 1L-7.6-2.5L-2-2.6z",
};

/** A legend: [class, words] a line, drawn as small samples of the plot's own lines and shapes. */
export function legend(entries) {
  const item = ([className, words, shape]) => {
    const sample = shape === "ring" ? element("circle", { class: "ring", cx: 13, cy: 7, r: 6 }) : shape
      ? element("path", { class: `shape ${className}`, d: SHAPES[shape], transform: "translate(13 7)" })
      : element("path", { class: `line ${className}`, d: "M1 7H25" });
    return element("li", {}, element("svg", { viewBox: "0 0 26 14", width: 26, height: 14, "aria-hidden": "true" }, sample), words);
  };
  return element("ul", { class: "live-legend" }, ...entries.map(item));
}
