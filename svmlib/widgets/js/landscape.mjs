// The landscape of one query: the loss as a picture, points where it is flat, the SVM's direction, and which
// tokens training ends up with from every start. The vector p is the column of W that the query (1, 0) reads.

import { advance as gradientSteps, attentionOf, compileProblem, lossOf, scaledGradient, selectedBy, startDirect } from "./attention.mjs";
import { axes, element, handle, legend, shortNumber } from "./plot.mjs";
import { differOnlyIn } from "./state.mjs";
import { frobeniusSVM } from "./svm.mjs";
import { flatPoints, endOf } from "./vector.mjs";

export const figure = { start, total: (state) => (state.basins ? GRID * GRID : 0), advance, build, summary, python, mend, update };

const GRID = 41; // starts a side; a step of the run is one of them
const PIXELS = 120;
const KINDS = { minimum: "minimum", saddle: "saddle", maximum: "maximum" };
const round = (x) => Math.round(x * 1e4) / 1e4;

function mend(state) {
  return { ...state, scores: state.X.map((tokens, i) => tokens.map((_, t) => state.scores[i]?.[t] ?? 0)) };
}

const column = ([x, y]) => [[x, 0], [y, 0]];

function start(state) {
  const layer = compileProblem({ X: state.X, z: state.X.map(() => [1, 0]), scores: state.scores });
  const run = { step: 0, layer, loss: state.loss, reach: state.reach, flat: flatPoints(layer, state.loss, state.reach), labels: [] };
  run.svm = frobeniusSVM(layer, layer.optimal);
  trace(state, run);
  return run;
}

/** The path from the start that is shown. */
function trace(state, run) {
  const weights = startDirect(run.layer, column(state.start));
  const rule = { rate: state.rate, normalized: state.rule === "normalised", loss: state.loss };
  run.path = [];
  for (let k = 0; ; ) {
    run.path.push([weights.W[0], weights.W[2]]);
    if (k >= state.steps) break;
    const next = Math.min(state.steps, Math.max(k + 1, Math.ceil(k * 1.05))); // fewer points as steps get many
    gradientSteps(run.layer, weights, next - k, rule);
    k = next;
  }
  run.end = [weights.W[0], weights.W[2]];
  run.selected = selectedBy(run.layer, weights.W);
  run.sure = Math.min(...attentionOf(run.layer, weights.W).map((s) => Math.max(...s)));
}

function update(state, before, run) {
  if (!differOnlyIn(state, before, ["start", "rule", "rate", "steps", "cone", "basins"])) return false;
  trace(state, run);
  return true;
}

function advance(run, count) {
  for (let k = 0; k < count; k++, run.step++) {
    const [x, y] = [run.step % GRID, GRID - 1 - Math.floor(run.step / GRID)].map((j) => run.reach * ((2 * j) / (GRID - 1) - 1));
    run.labels.push(endOf(run.layer, [x, y], run.loss));
  }
}

function build(ui) {
  const loss = axes({ title: "Loss, and a path: drag its start", equal: true, label: "Loss over the plane of p with a training path", height: 330, xlabel: "p₁", ylabel: "p₂" });
  const basins = axes({ title: "Which tokens from which start", equal: true, label: "The plane of starts coloured by the tokens selected in the end", height: 330, xlabel: "p₁", ylabel: "p₂" });
  const pictures = [loss, basins].map((plot) => picture(plot));
  const key = element("ul", { class: "live-legend" });
  ui.plots.append(loss.svg, basins.svg, legend([
    ["W", "training path"], ["fro", "direction of the SVM"], ["opt", "flat: minimum", "dot"], ["KQ", "flat: saddle", "square"], ["query", "start", "diamond"], ["guide", "cone about it"],
  ]), key);
  for (const plot of [loss, basins]) {
    plot.svg.addEventListener("click", (e) => {
      if (e.target.closest(".handle")) return;
      const [x, y] = plot.at(e), r = ui.state.reach;
      if (Math.max(Math.abs(x), Math.abs(y)) <= r) ui.change({ start: [round(x), round(y)] });
    });
  }
  const themes = new MutationObserver(() => ui.redraw()); // a picture does not follow the style sheet by itself
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  return (state, run) => {
    drawLoss(loss, pictures[0], state, run);
    drawBasins(basins, pictures[1], key, state, run);
    for (const plot of [loss, basins]) drawMarks(ui, plot, state, run);
  };
}

/** A canvas shown inside a plot: what is drawn in it lies under all marks. */
function picture(plot) {
  const canvas = document.createElement("canvas");
  const image = plot.mark("picture", "image", { preserveAspectRatio: "none" });
  return { canvas, image, shown: "" };
}

function place(plot, { canvas, image }, reach) {
  const [x0, x1, y0, y1] = [plot.px(-reach), plot.px(reach), plot.py(reach), plot.py(-reach)];
  for (const [k, v] of Object.entries({ x: x0, y: y0, width: x1 - x0, height: y1 - y0, href: canvas.toDataURL() })) image.setAttribute(k, v);
}

const shade = (name) => getComputedStyle(document.querySelector(".live")).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const full = (hex) => (hex.length === 4 ? `#${[...hex.slice(1)].map((c) => c + c).join("")}` : hex);

function drawLoss(plot, pic, state, run) {
  const r = state.reach, paper = rgb(full(shade("--paper"))), ink = rgb(full(shade("--W")));
  plot.range([-r, r], [-r, r]);
  const key = JSON.stringify([state.X, state.scores, state.loss, r, paper]);
  if (key === pic.shown) return;
  pic.shown = key;
  pic.canvas.width = pic.canvas.height = PIXELS;
  const values = new Float64Array(PIXELS * PIXELS), W = new Float64Array(4);
  for (let a = 0; a < PIXELS; a++) {
    for (let b = 0; b < PIXELS; b++) {
      W[0] = r * ((2 * (b + 0.5)) / PIXELS - 1);
      W[2] = r * (1 - (2 * (a + 0.5)) / PIXELS);
      values[a * PIXELS + b] = lossOf(run.layer, W, state.loss);
    }
  }
  const lo = Math.min(...values), hi = Math.max(...values), data = new ImageData(PIXELS, PIXELS);
  values.forEach((v, k) => {
    const t = hi > lo ? (v - lo) / (hi - lo) : 0, level = Math.round(t * 12) / 12; // bands: their edges are level lines
    for (let c = 0; c < 3; c++) data.data[4 * k + c] = Math.round(paper[c] + 0.55 * level * (ink[c] - paper[c]));
    data.data[4 * k + 3] = 255;
  });
  pic.canvas.getContext("2d").putImageData(data, 0, 0);
  place(plot, pic, r);
}

const PALETTE = ["--opt", "--KQ", "--support", "--path", "--W", "--plain", "--fro", "--nuc"];

function drawBasins(plot, pic, key, state, run) {
  const r = state.reach;
  plot.range([-r, r], [-r, r]);
  const good = run.layer.optimal.join(), names = [...new Set([good, ...run.labels])];
  const colors = new Map(names.map((name, k) => [name, name === "flat" ? "--grid" : PALETTE[k % PALETTE.length]]));
  const shown = JSON.stringify([run.labels.length, shade("--paper"), state.X, state.scores, r, state.loss]);
  if (shown === pic.shown) return;
  pic.shown = shown;
  pic.canvas.width = pic.canvas.height = GRID;
  pic.image.style.imageRendering = "pixelated"; // a square a start
  const context = pic.canvas.getContext("2d");
  run.labels.forEach((name, k) => {
    context.fillStyle = full(shade(colors.get(name)));
    context.globalAlpha = name === "flat" ? 1 : 0.6;
    context.fillRect(k % GRID, Math.floor(k / GRID), 1, 1);
  });
  place(plot, pic, r);
  const count = (name) => run.labels.filter((l) => l === name).length;
  key.replaceChildren(...(run.labels.length ? names : []).map((name) => element("li", {},
    element("span", { class: "live-swatch", style: `background: var(${colors.get(name)})` }),
    `${name === "flat" ? "stops at a flat point" : `${name === good ? "optimal" : "other"}: token${state.X.length > 1 ? "s" : ""} ${name.split(",").map((t) => Number(t) + 1).join(", ")}`} (${shortNumber((100 * count(name)) / Math.max(1, run.labels.length))} %)`)));
}

function drawMarks(ui, plot, state, run) {
  if (run.svm.status === "solved") {
    const [x, y] = [run.svm.W[0], run.svm.W[2]], half = Math.acos(1 - state.cone);
    plot.ray("svm", "fro", x, y);
    for (const [side, a] of [["left", half], ["right", -half]]) {
      plot.ray(`svm-${side}`, "guide", x * Math.cos(a) - y * Math.sin(a), x * Math.sin(a) + y * Math.cos(a));
    }
  } else plot.drop("svm");
  plot.line("path", "W", run.path.map((p) => p[0]), run.path.map((p) => p[1]));
  const kept = new Set();
  run.flat.forEach(({ p, kind }, k) => {
    kept.add(`flat-${k}`);
    const shape = plot.mark(`flat-${k}`, "path", { class: `shape ${kind === "saddle" ? "KQ" : kind === "minimum" ? "opt" : "token"}`, d: kind === "saddle" ? "M-5-5H5V5H-5z" : "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z" });
    shape.setAttribute("transform", `translate(${plot.px(p[0])} ${plot.py(p[1])})`);
  });
  plot.drop("flat-", kept);
  handle(plot, { key: "start", label: "Start of training", className: "query", shape: "diamond", x: state.start[0], y: state.start[1], move: (x, y) => ui.change({ start: [x, y].map((v) => round(Math.max(-state.reach, Math.min(state.reach, v)))) }) });
}

function summary(state, run) {
  const tokens = (list) => `token${list.length > 1 ? "s" : ""} ${list.map((t) => t + 1).join(", ")}`;
  const G = Math.exp(scaledGradient(run.layer, Float64Array.of(run.end[0], 0, run.end[1], 0), state.loss)) * Math.hypot(run.layer.G[0], run.layer.G[2]);
  const where = run.sure > 0.95 ? `selects ${tokens(run.selected)} (${String(run.selected) === String(run.layer.optimal) ? "optimal" : "not all optimal"}), with probability ${run.sure < 0.9999 ? shortNumber(run.sure) : "above 0.9999"}` : `is at (${run.end.map((x) => shortNumber(x)).join(", ")}), where no token has all attention and the gradient has size ${shortNumber(G)}`;
  const flat = run.flat.length ? `${run.flat.length} flat point${run.flat.length > 1 ? "s" : ""} in view (${run.flat.map((f) => KINDS[f.kind]).join(", ")})` : "no flat point in view";
  const done = run.labels.length, right = run.labels.filter((l) => l === run.layer.optimal.join()).length;
  const share = done ? ` Of ${done.toLocaleString("en")} starts ${shortNumber((100 * right) / done)} % end with the optimal tokens.` : "";
  const svm = run.svm.status === "solved" ? "" : " The optimal tokens cannot be separated: there is no SVM direction.";
  return `From (${state.start.map((x) => shortNumber(x)).join(", ")}) training ${where}. There ${run.flat.length > 1 ? "are" : "is"} ${flat}.${share}${svm}`;
}

function python(state) {
  const T = Math.max(...state.X.map((x) => x.length)), f = JSON.stringify;
  const pad = (rows, fill) => rows.map((row) => [...row, ...Array(T - row.length).fill(fill)]);
  const mask = state.X.some((x) => x.length < T) ? `, mask=${f(pad(state.X.map((x) => x.map(() => 1)), 0))}` : "";
  return `import numpy as np
import svmlib as sv

keys = np.array(${f(pad(state.X, [0, 0]))}, float)
scores = np.array(${f(pad(state.scores, 0))}, float)
n = len(keys)
p = sv.data.Problem(scores[..., None], np.ones((n, 1)), np.ones(n), [1.0], keys=keys${mask})
rule = sv.dynamics.${state.rule === "normalised" ? "normalized" : "gradient_descent"}(${state.rate})
run = sv.dynamics.train(p, sv.attention.Direct(np.array([[${state.start[0]}], [${state.start[1]}]])), rule, ${state.steps}, loss="${state.loss}")
print("tokens", run.selected, "probability", run.top_probability[-1], "p", run.W[-1, :, 0])
`;
}
