// The regularisation path: a slider for the radius, W and (K, Q) on their balls, and the SVMs they turn to.

import { attentionOf, compileProblem, correlation } from "./attention.mjs";
import { pathPoint } from "./path.mjs";
import { axes, legend, shortNumber } from "./plot.mjs";
import { differOnlyIn } from "./state.mjs";
import { frobeniusSVM, nuclearSVM } from "./svm.mjs";
import { instanceOf, instancePython, mendInstance } from "./instance.mjs";

export const figure = { start, total: () => RADII.length, advance, build, summary, python, mend: mendInstance, update };

const RADII = Array.from({ length: 55 }, (_, k) => 0.05 * 4000 ** (k / 54)); // in units of the SVM's norm
const SIDES = { W: ["fro", frobeniusSVM], KQ: ["nuc", nuclearSVM] };
const NAMES = { W: "W", KQ: "(K, Q)" };

function start(state) {
  const layer = compileProblem(instanceOf(state)), run = { step: 0, layer, loss: state.loss, sides: {} };
  for (const [name, [norm, solve]] of Object.entries(SIDES)) {
    const svm = solve(layer, layer.optimal), unit = svm.status === "solved" ? svm.value : 1;
    run.sides[name] = { norm, svm, unit, points: [] };
  }
  slide(state, run);
  return run;
}

/** The points at the radius that is shown. */
function slide(state, run) {
  for (const side of Object.values(run.sides)) side.now = pathPoint(run.layer, side.norm, state.radius * side.unit, state.loss, side.svm.W);
}

function update(state, before, run) {
  if (!differOnlyIn(state, before, ["radius"])) return false;
  slide(state, run);
  return true;
}

/** One more radius for both balls. */
function advance(run, count) {
  for (let k = 0; k < count; k++, run.step++) {
    for (const side of Object.values(run.sides)) {
      const R = RADII[run.step], last = side.points.at(-1)?.W;
      side.points.push({ R, ...pathPoint(run.layer, side.norm, R * side.unit, run.loss, side.svm.W, last) });
    }
  }
}

/** The smallest margin of an optimal token, over the radius: 1 is what the SVM has. */
function margin(layer, W, R) {
  let least = Infinity;
  for (let i = 0; i < layer.n; i++) {
    const [x, y] = [layer.z[2 * i], layer.z[2 * i + 1]], image = [W[0] * x + W[1] * y, W[2] * x + W[3] * y];
    const from = layer.first[i], best = from + layer.optimal[i];
    for (let t = from; t < layer.first[i + 1]; t++) {
      if (t !== best) least = Math.min(least, (layer.tokens[2 * best] - layer.tokens[2 * t]) * image[0] + (layer.tokens[2 * best + 1] - layer.tokens[2 * t + 1]) * image[1]);
    }
  }
  return least / R;
}

const times = (W, z) => [W[0] * z[0] + W[1] * z[1], W[2] * z[0] + W[3] * z[1]];
const short = ([x, y]) => {
  const r = Math.hypot(x, y);
  return r > 0 ? [(x / r) * Math.log10(1 + r), (y / r) * Math.log10(1 + r)] : [0, 0];
};

function build(ui) {
  const plane = axes({ title: "Images of the queries, log lengths", equal: true, ticks: false, label: "Paths of W z and K Q transposed z as the radius grows, with the rays of both SVMs", height: 290 });
  const bars = axes({ title: "Attention at R", ticks: false, label: "Attention of every token at the radius", height: 290 });
  const corr = axes({ title: "Distance in direction from the SVM", xlog: true, ylog: true, xlabel: "R over the SVM's norm", ylabel: "1 − correlation", label: "One minus the correlation with the SVM against the radius", height: 260 });
  const margins = axes({ title: "Margin over the radius", xlog: true, xlabel: "R over the SVM's norm", ylabel: "margin / R", label: "Smallest margin over the radius against the radius", height: 260 });
  ui.plots.append(plane.svg, bars.svg, corr.svg, margins.svg, legend([
    ["W", "W on the Frobenius ball"], ["KQ", "(K, Q): nuclear ball"], ["fro", "Frobenius SVM"], ["nuc", "nuclear SVM"], ["opt", "optimal token", "star"], ["guide", "the radius; the SVM's margin"],
  ]));
  return (state, run) => {
    drawPlane(plane, state, run);
    drawBars(bars, run);
    drawCurves(corr, margins, state, run);
  };
}

function drawPlane(plot, state, run) {
  const lines = {};
  let reach = 0.3;
  for (const [name, side] of Object.entries(run.sides)) {
    lines[name] = state.z.map((z) => side.points.map(({ W }) => short(times(W, z))));
    const now = state.z.map((z) => short(times(side.now.W, z)));
    for (const [x, y] of [...lines[name].flat(), ...now]) reach = Math.max(reach, Math.abs(x), Math.abs(y));
  }
  plot.range([-1.1 * reach, 1.1 * reach], [-1.1 * reach, 1.1 * reach]);
  const kept = new Set();
  for (const [name, side] of Object.entries(run.sides)) {
    state.z.forEach((z, i) => {
      const key = `${name}-${i}`, at = short(times(side.now.W, z));
      for (const part of ["", "-now", "-name"]) kept.add(key + part);
      if (side.svm.status === "solved") {
        kept.add(`${key}-ray`);
        plot.ray(`${key}-ray`, side.norm, ...times(side.svm.W, z));
      }
      plot.line(key, name, lines[name][i].map((p) => p[0]), lines[name][i].map((p) => p[1]));
      plot.dot(`${key}-now`, `fill ${name}`, at[0], at[1], 4.5);
      plot.text(`${key}-name`, "", at[0], at[1], String(i + 1), 7, name === "W" ? 12 : -5);
    });
  }
  for (const name of Object.keys(SIDES)) plot.drop(`${name}-`, kept);
}

function drawBars(plot, run) {
  const s = Object.fromEntries(Object.entries(run.sides).map(([name, side]) => [name, attentionOf(run.layer, side.now.W)]));
  const total = run.layer.first[run.layer.n] + run.layer.n - 1, kept = new Set();
  plot.range([-0.3, total + 0.3], [-0.16, 1.08]);
  let x = 0;
  s.W.forEach((row, i) => {
    row.forEach((_, t) => {
      const key = `bar-${i}-${t}`, best = run.layer.optimal[i] === t;
      for (const part of ["-W", "-KQ", "-name"]) kept.add(key + part);
      plot.bar(`${key}-W`, "fill W", x + 0.1, x + 0.48, 0, s.W[i][t]);
      plot.bar(`${key}-KQ`, "fill KQ", x + 0.52, x + 0.9, 0, s.KQ[i][t]);
      plot.text(`${key}-name`, best ? "opt strong" : "", x + 0.5, -0.08, `${t + 1}${best ? " ★" : ""}`).setAttribute("text-anchor", "middle");
      x++;
    });
    kept.add(`bar-${i}-sequence`);
    plot.text(`bar-${i}-sequence`, "small", x - row.length / 2, -0.15, `sequence ${i + 1}`).setAttribute("text-anchor", "middle");
    x++;
  });
  plot.drop("bar-", kept);
}

function drawCurves(corr, margins, state, run) {
  const away = (side, W) => (side.svm.status === "solved" ? Math.max(1 - correlation(W, side.svm.W), 1e-12) : NaN);
  const all = Object.values(run.sides).flatMap((side) => side.points.map(({ W }) => away(side, W))).filter((x) => x > 0);
  corr.range([RADII[0], RADII.at(-1)], [Math.min(0.1, ...all) / 1.5, 2.5]);
  margins.range([RADII[0], RADII.at(-1)], [-1, 1.15]);
  for (const [name, side] of Object.entries(run.sides)) {
    corr.line(name, name, side.points.map((p) => p.R), side.points.map(({ W }) => away(side, W)));
    corr.dot(`${name}-now`, `fill ${name}`, state.radius, away(side, side.now.W) || 1e9, 4);
    margins.line(name, name, side.points.map((p) => p.R), side.points.map((p) => margin(run.layer, p.W, p.R)));
    margins.dot(`${name}-now`, `fill ${name}`, state.radius, margin(run.layer, side.now.W, state.radius), 4);
  }
  corr.line("radius", "guide", [state.radius, state.radius], [1e-13, 10]);
  margins.line("radius", "guide", [state.radius, state.radius], [-2, 2]);
  margins.line("one", "guide", [RADII[0], RADII.at(-1)], [1, 1]);
}

function summary(state, run) {
  const parts = Object.entries(run.sides).map(([name, side]) => {
    const sure = Math.min(...attentionOf(run.layer, side.now.W).map((s, i) => s[run.layer.optimal[i]]));
    const where = side.now.inside ? ", inside its ball" : "";
    if (side.svm.status !== "solved") return `${NAMES[name]}${where} gives the optimal tokens ${shortNumber(sure)} or more; they cannot be separated.`;
    const alike = correlation(side.now.W, side.svm.W);
    return `${NAMES[name]}${where} has ${Number.isNaN(alike) ? "no direction" : `correlation ${alike.toFixed(5)} with its SVM`}, ${shortNumber(100 * margin(run.layer, side.now.W, state.radius))} % of its margin, and gives the optimal tokens ${shortNumber(sure)} or more.`;
  });
  return `At radius ${shortNumber(state.radius)} in units of the SVM's norm: ${parts.join(" ")}`;
}

function python(state) {
  const { data } = instancePython(state);
  return ["import numpy as np", "import svmlib as sv", "", ...data, 'for norm in ("fro", "nuc"):', "    svm = sv.svm.attention_svm(p, norm=norm)",
    `    path = sv.dynamics.regularization_path(p, [${state.radius} * float(svm.value)], norm=norm, loss="${state.loss}")`,
    "    print(norm, path.W[0], sv.compare.correlation(path.W[0], svm.W))", ""].join("\n");
}
