// Softmax as a selector: tokens in the plane, a direction, and a norm that hardens the choice.

import { logSoftmax } from "./attention.mjs";
import { axes, element, handle, legend, shortNumber } from "./plot.mjs";

export const figure = { start, total: () => 0, advance: () => {}, build, summary, python, mend };

const NORMS = Array.from({ length: 121 }, (_, k) => 10 ** (-1 + k / 30));
const round = (x) => Math.round(x * 1e4) / 1e4;

function mend(state) {
  return { ...state, good: Math.min(state.good, state.X.length) };
}

function start(state) {
  const a = (state.angle * Math.PI) / 180, p = [Math.cos(a), Math.sin(a)];
  const heights = state.X.map((x) => x[0] * p[0] + x[1] * p[1]); // logits at norm 1
  const gaps = heights.map((h) => heights[state.good - 1] - h);
  const margin = Math.min(...gaps.filter((_, t) => t !== state.good - 1));
  return { step: 0, p, heights, gaps, margin, logs: logSoftmax(heights.map((h) => h * state.norm)) };
}

function build(ui) {
  const plane = axes({ title: "Tokens, p, and the line that must separate", equal: true, label: "Tokens in the plane with the vector p", height: 300 });
  const bars = axes({ title: "Attention", ticks: false, label: "Attention probabilities of the tokens", height: 300 });
  const curves = axes({ title: "Hardening", xlog: true, ylog: true, x: [0.1, 1000], xlabel: "norm of p", ylabel: "probability", label: "Probabilities against the norm of p", height: 300 });
  ui.plots.append(plane.svg, bars.svg, curves.svg, legend([
    ["opt", "the good token", "star"], ["token", "on the right side: vanish", "dot"], ["KQ", "on the wrong side: win", "square"], ["query", "direction of p", "diamond"], ["guide", "exponential of −norm · gap"],
  ]));
  return (state, run) => {
    drawPlane(ui, plane, state, run);
    drawBars(bars, state, run);
    drawCurves(curves, state, run);
  };
}

const kind = (run, state, t) => (t === state.good - 1 ? "opt" : run.gaps[t] > 0 ? "token" : "KQ");

function drawPlane(ui, plot, state, run) {
  const reach = 1.15 * Math.max(1.2, ...state.X.flat().map(Math.abs));
  if (!plot.svg.querySelector(":active")) plot.range([-reach, reach], [-reach, reach]);
  const kept = new Set(), at = state.X[state.good - 1], across = [-run.p[1] * 9, run.p[0] * 9];
  plot.line("separator", "opt thin", [at[0] - across[0], at[0] + across[0]], [at[1] - across[1], at[1] + across[1]]);
  plot.line("p-line", "query", [0, run.p[0]], [0, run.p[1]]);
  handle(plot, {
    key: "p", label: "Direction of p", className: "query", shape: "diamond", x: run.p[0], y: run.p[1],
    move: (x, y) => ui.change({ angle: round((Math.atan2(y, x) * 180) / Math.PI) }),
  });
  state.X.forEach((x, t) => {
    const key = `token-${t}`, good = t === state.good - 1;
    kept.add(key).add(`${key}-name`);
    handle(plot, {
      key, label: `${good ? "Good token" : "Token"} ${t + 1}`, className: kind(run, state, t), shape: good ? "star" : run.gaps[t] > 0 ? "dot" : "square", x: x[0], y: x[1],
      move: (a, b) => ui.change({ X: ui.state.X.map((row, k) => (k === t ? [round(a), round(b)] : row)) }),
      remove: state.X.length > 2 ? () => ui.change({ X: ui.state.X.filter((_, k) => k !== t) }) : undefined,
    });
    plot.text(`${key}-name`, "", x[0], x[1], String(t + 1), 8, -6);
  });
  plot.drop("token-", kept);
}

function drawBars(plot, state, run) {
  const T = state.X.length, kept = new Set();
  plot.range([0.4, T + 0.6], [-0.09, 1.08]);
  run.logs.forEach((log, t) => {
    kept.add(`bar-${t}`).add(`bar-${t}-name`).add(`bar-${t}-value`);
    plot.bar(`bar-${t}`, `fill ${kind(run, state, t)}`, t + 0.65, t + 1.35, 0, Math.exp(log));
    plot.text(`bar-${t}-name`, "", t + 1, -0.07, String(t + 1)).setAttribute("text-anchor", "middle");
    plot.text(`bar-${t}-value`, "small", t + 1, Math.exp(log), shortNumber(Math.exp(log), 2), 0, -4).setAttribute("text-anchor", "middle");
  });
  plot.drop("bar-", kept);
}

function drawCurves(plot, state, run) {
  plot.range([0.1, 1000], [1e-8, 2]);
  const kept = new Set(), all = NORMS.map((norm) => logSoftmax(run.heights.map((h) => h * norm)));
  state.X.forEach((_, t) => {
    kept.add(`curve-${t}`).add(`guess-${t}`).add(`now-${t}`);
    const good = t === state.good - 1;
    plot.line(`guess-${t}`, "guide thin", NORMS, NORMS.map((norm) => (good || run.margin <= 0 ? NaN : Math.exp(Math.max(-300, -norm * run.gaps[t])))));
    plot.line(`curve-${t}`, `${kind(run, state, t)} solid`, NORMS, all.map((logs) => Math.exp(Math.max(-300, logs[t]))));
    plot.dot(`now-${t}`, `fill ${kind(run, state, t)}`, state.norm, Math.max(1e-9, Math.exp(run.logs[t])), 3.5);
  });
  for (const prefix of ["curve-", "guess-", "now-"]) plot.drop(prefix, kept);
  plot.line("norm", "guide", [state.norm, state.norm], [1e-9, 2]);
}

function summary(state, run) {
  const s = run.logs.map(Math.exp), winner = s.indexOf(Math.max(...s));
  const wrong = run.gaps.filter((g, t) => t !== state.good - 1 && g <= 0).length;
  const said = wrong
    ? `${wrong} of the other tokens ${wrong > 1 ? "are" : "is"} on the wrong side of the line through it: no norm of p selects it in this direction.`
    : `All others are on the right side, the nearest at margin ${shortNumber(run.margin)}: a norm of ${shortNumber(Math.log(99 * (state.X.length - 1)) / run.margin)} is enough for probability 0.99.`;
  return `At norm ${shortNumber(state.norm)} the good token ${state.good} has probability ${shortNumber(s[state.good - 1])}; the most attended is token ${winner + 1} with ${shortNumber(s[winner])}. ${said}`;
}

function python(state) {
  return `import numpy as np
import svmlib as sv

X = np.array(${JSON.stringify(state.X)}, float)
angle, norm = np.deg2rad(${state.angle}), ${state.norm}
p = norm * np.array([np.cos(angle), np.sin(angle)])
problem = sv.data.Problem(X[None], [[1.0]], [1], [0.0, 0.0])
print(sv.attention.probabilities(problem, sv.attention.Direct(p[:, None])))
gaps = (X[${state.good - 1}] - X) @ p / norm
print("margin", np.delete(gaps, ${state.good - 1}).min())
`;
}
