// The token plane: tokens and queries to drag, paths of W z_i and K Q^T z_i, the SVMs' rays, correlations.

import { advance, attentionOf, compileProblem, correlation, matrixOf, selectedBy, startDirect, startFactored } from "./attention.mjs";
import { frobeniusSVM, nuclearSVM } from "./svm.mjs";
import { typedNumber } from "./figure.mjs";
import { instanceOf, instancePython, mendInstance, round } from "./instance.mjs";
import { axes, element, handle, legend, shortNumber } from "./plot.mjs";

const NAMES = { W: "W", KQ: "(K, Q)" };
const NORMS = { W: "Frobenius", KQ: "nuclear" };
const SHAPES = ["dot", "square", "diamond", "dot"];
const RECORDS = 24; // a decade of iterations

export const figure = { start, total: (state) => state.steps, advance: advanceAll, build, summary, python, mend: mendInstance };

function start(state) {
  const layer = compileProblem(instanceOf(state));
  const rule = { rate: state.rate, normalized: state.rule === "normalised", loss: state.loss };
  const run = { step: 0, layer, rule, optimal: layer.optimal, sides: {}, steps: [] };
  if (state.show !== "KQ") run.sides.W = { weights: startDirect(layer, state.W0) };
  if (state.show !== "W") run.sides.KQ = { weights: startFactored(layer, state.K0, state.Q0) };
  for (const side of Object.values(run.sides)) side.path = [];
  run.next = 0;
  record(run);
  return run;
}

function record(run) {
  run.steps.push(run.step);
  for (const side of Object.values(run.sides)) side.path.push(Float64Array.from(matrixOf(side.weights)));
  run.next = Math.max(run.step + 1, Math.ceil(run.step * 10 ** (1 / RECORDS)));
}

function advanceAll(run, count) {
  for (let left = count; left > 0; ) {
    const n = Math.min(left, run.next - run.step);
    for (const side of Object.values(run.sides)) advance(run.layer, side.weights, n, run.rule);
    run.step += n;
    left -= n;
    if (run.step >= run.next) record(run);
  }
}

/** What each side selects now and the SVM it is compared with; solved again only when the tokens change. */
function compared(state, run) {
  for (const [name, side] of Object.entries(run.sides)) {
    const W = matrixOf(side.weights);
    side.selected = selectedBy(run.layer, W);
    const tokens = state.tokens === "optimal" ? run.optimal : side.selected;
    if (String(tokens) !== String(side.separated)) {
      side.separated = tokens;
      side.svm = (name === "W" ? frobeniusSVM : nuclearSVM)(run.layer, tokens);
    }
    side.now = side.svm.status === "solved" ? correlation(W, side.svm.W) : NaN;
  }
}

const times = (W, z) => [W[0] * z[0] + W[1] * z[1], W[2] * z[0] + W[3] * z[1]];
const logRadius = ([x, y]) => {
  const r = Math.hypot(x, y);
  return r > 0 ? [(x / r) * Math.log10(1 + r), (y / r) * Math.log10(1 + r)] : [0, 0];
};

function build(ui) {
  const plane = axes({ title: "Tokens: drag them", equal: true, label: "Tokens and queries in the plane", height: 300 });
  const paths = axes({ title: "Paths of the queries' images", equal: true, label: "Paths of W z and K Q transposed z with the rays of both SVMs", ticks: false, height: 300 });
  const corr = axes({ title: "Distance in direction from the SVM", xlog: true, ylog: true, xlabel: "iteration", ylabel: "1 − correlation", label: "One minus the correlation with the SVM against the iteration", height: 300 });
  const table = numbersTable(ui);
  ui.plots.append(plane.svg, paths.svg, corr.svg, legend([
    ["W", "W z"], ["fro", "Frobenius SVM"], ["KQ", "K Qᵀ z"], ["nuc", "nuclear SVM"], ["opt", "selected", "star"],
    ["token", "other tokens", "dot"], ["support", "support token", "ring"], ["query", "query", "diamond"],
  ]), table.element);
  return (state, run) => {
    compared(state, run);
    drawPlane(ui, plane, state, run);
    drawPaths(paths, state, run);
    drawCorrelations(corr, run);
    table.show(state, run);
  };
}

function drawPlane(ui, plot, state, run) {
  const all = [...state.X.flat(), ...state.z, [0, 0], ...(state.scoring === "head" ? [state.v] : [])];
  const reach = Math.max(1, ...all.flat().map(Math.abs)) * 1.12;
  if (!plot.svg.querySelector(":active")) plot.range([-reach, reach], [-reach, reach]); // no zoom under the hand
  const side = run.sides.W ?? run.sides.KQ;
  const kept = new Set();
  const move = (key, where, edit) => {
    const put = (x, y) => {
      const copy = structuredClone(ui.state[key]);
      edit(copy, [round(x), round(y)]);
      ui.change({ [key]: copy });
    };
    return { x: where[0], y: where[1], move: put };
  };
  state.X.forEach((tokens, i) => tokens.forEach((x, t) => {
    const key = `token-${i}-${t}`, chosen = side.selected[i] === t;
    kept.add(key);
    handle(plot, {
      key, label: `Token ${t + 1} of sequence ${i + 1}, score ${shortNumber(run.layer.scores[i][t])}${chosen ? ", selected" : ""}`,
      className: `${chosen ? "opt" : "token"}${i % 2 ? " hollow" : ""}`, shape: chosen ? "star" : SHAPES[i],
      ...move("X", x, (X, at) => { X[i][t] = at; }),
      remove: tokens.length > 1 ? () => removeToken(ui, i, t) : undefined,
    });
    if (side.svm.status === "solved" && side.svm.support[i][t]) {
      kept.add(`ring-${i}-${t}`);
      plot.dot(`ring-${i}-${t}`, "ring", x[0], x[1], 9);
    }
  }));
  state.z.forEach((z, i) => {
    plot.line(`z-line-${i}`, "query", [0, z[0]], [0, z[1]]);
    handle(plot, { key: `z-${i}`, label: `Query of sequence ${i + 1}`, className: "query", shape: "diamond", ...move("z", z, (Z, at) => { Z[i] = at; }) });
    plot.text(`z-name-${i}`, "", z[0], z[1], `z${"₁₂₃₄"[i]}`, 9, 4);
    for (const key of [`z-line-${i}`, `z-${i}`, `z-name-${i}`]) kept.add(key);
  });
  if (state.scoring === "head") {
    plot.line("v-line", "guide", [0, state.v[0]], [0, state.v[1]]);
    handle(plot, { key: "v", label: "Head v", className: "guide", shape: "square", ...move("v", state.v, (v, at) => { v[0] = at[0]; v[1] = at[1]; }) });
    plot.text("v-name", "", state.v[0], state.v[1], "v", 9, 4);
    for (const key of ["v-line", "v", "v-name"]) kept.add(key);
  }
  for (const prefix of ["token-", "ring-", "z-", "v"]) plot.drop(prefix, kept);
}

function drawPaths(plot, state, run) {
  const points = {};
  let reach = 0.5;
  for (const [name, side] of Object.entries(run.sides)) {
    const last = matrixOf(side.weights);
    points[name] = state.z.map((z) => [...side.path, last].map((W) => logRadius(times(W, z))));
    for (const [x, y] of points[name].flat()) reach = Math.max(reach, Math.abs(x), Math.abs(y));
  }
  plot.range([-1.1 * reach, 1.1 * reach], [-1.1 * reach, 1.1 * reach]);
  const kept = new Set();
  for (let k = 0; k <= reach; k++) {
    const r = Math.log10(1 + 10 ** k), key = `circle-${k}`;
    kept.add(key);
    plot.mark(key, "circle", { class: "grid", fill: "none", cx: plot.px(0), cy: plot.py(0), r: plot.px(r) - plot.px(0) });
    plot.text(`${key}-name`, "tick", r * Math.SQRT1_2, -r * Math.SQRT1_2, `length ${shortNumber(10 ** k)}`);
    kept.add(`${key}-name`);
  }
  for (const [name, side] of Object.entries(run.sides)) {
    state.z.forEach((z, i) => {
      if (side.svm.status === "solved") {
        kept.add(`ray-${name}-${i}`);
        plot.ray(`ray-${name}-${i}`, name === "W" ? "fro" : "nuc", ...times(side.svm.W, z));
      }
      const at = points[name][i], end = at.at(-1);
      for (const key of [`path-${name}-${i}`, `end-${name}-${i}`, `name-${name}-${i}`]) kept.add(key);
      plot.line(`path-${name}-${i}`, name, at.map((p) => p[0]), at.map((p) => p[1]));
      plot.dot(`end-${name}-${i}`, `fill ${name}`, end[0], end[1], 3.5);
      plot.text(`name-${name}-${i}`, "", end[0], end[1], String(i + 1), 6, name === "W" ? 12 : -5);
    });
  }
  for (const prefix of ["circle-", "ray-", "path-", "end-", "name-"]) plot.drop(prefix, kept);
}

function drawCorrelations(plot, run) {
  const curves = Object.entries(run.sides).map(([name, side]) => {
    const solved = side.svm.status === "solved";
    const steps = [...run.steps, run.step], W = [...side.path, matrixOf(side.weights)];
    const ys = steps.map((k, j) => (solved && k > 0 ? Math.max(1 - correlation(W[j], side.svm.W), 1e-12) : NaN));
    return [name, steps, ys];
  });
  const low = Math.min(0.1, ...curves.flatMap(([, , ys]) => ys.filter((y) => y > 0)));
  plot.range([1, Math.max(10, run.step)], [low / 1.5, 2.5]);
  for (const [name, steps, ys] of curves) plot.line(name, name, steps, ys);
  for (const name of ["W", "KQ"]) if (!run.sides[name]) plot.drop(name);
}

function removeToken(ui, i, t) {
  const cut = (list) => list.map((row, k) => (k === i ? row.filter((_, j) => j !== t) : row));
  ui.change({ X: cut(ui.state.X), scores: cut(ui.state.scores) });
}

function addToken(ui, i) {
  const { X, scores, spec } = { ...ui.state, spec: ui.spec };
  const most = spec.fields.find((f) => f.name === "X").shape[1][1];
  if (X[i].length >= most) return ui.note(`A sequence has at most ${most} tokens.`);
  const k = X[i].length, turn = 2.4 * k; // a new place each time
  const at = [0.5 * Math.cos(turn), 0.5 * Math.sin(turn)];
  ui.change({ X: X.map((row, j) => (j === i ? [...row, at] : row)), scores: scores.map((row, j) => (j === i ? [...row, 0] : row)) });
}

/** All numbers of the instance as native inputs, in a part that is folded at first. */
function numbersTable(ui) {
  const body = element("div", {});
  const box = element("details", { ontoggle: () => ui.redraw() }, element("summary", {}, "All numbers; add and remove tokens and sequences"), body);
  let shown = "";
  const input = (label, value, edit, disabled) => typedNumber({ value: Number(value.toPrecision(6)), "aria-label": label, disabled }, edit);
  const edited = (key, edit) => (x) => {
    const copy = structuredClone(ui.state[key]);
    edit(copy, x);
    ui.change({ [key]: copy });
  };
  function rows(state, run) {
    const own = state.scoring === "own";
    return state.X.flatMap((tokens, i) => tokens.map((x, t) => {
      const name = `token ${t + 1} of sequence ${i + 1}`;
      const remove = element("button", { type: "button", "aria-label": `Remove ${name}`, disabled: tokens.length < 2, onclick: () => removeToken(ui, i, t) }, "Remove");
      return element("tr", {}, element("th", { scope: "row" }, name),
        ...[0, 1].map((c) => element("td", {}, input(`${"xy"[c]} of ${name}`, x[c], edited("X", (X, value) => { X[i][t][c] = value; })))),
        element("td", {}, input(`score of ${name}`, run.layer.scores[i][t], edited("scores", (s, value) => { s[i][t] = value; }), !own)),
        element("td", {}, remove));
    }));
  }
  function matrix(key, words) {
    const cells = ui.state[key].map((row, a) => element("tr", {}, ...row.map((x, b) =>
      element("td", {}, input(`${words}, row ${a + 1}, column ${b + 1}`, x, edited(key, (M, value) => { M[a][b] = value; }))))));
    return element("table", {}, element("caption", {}, words), ...cells);
  }
  function show(state, run) {
    const key = box.open ? JSON.stringify([state.X, state.z, state.scores, state.v, state.scoring, state.W0, state.K0, state.Q0]) : "";
    if (key === shown || body.contains(document.activeElement) && document.activeElement.tagName === "INPUT" && key.length === shown.length) return;
    shown = key;
    if (!box.open) return body.replaceChildren();
    const focus = body.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const head = element("tr", {}, ...["token", "x", "y", "score", ""].map((w) => element("th", { scope: "col" }, w)));
    const queries = state.z.map((z, i) => element("tr", {}, element("th", { scope: "row" }, `query ${i + 1}`), ...[0, 1].map((c) =>
      element("td", {}, input(`${"xy"[c]} of query ${i + 1}`, z[c], edited("z", (Z, value) => { Z[i][c] = value; }))))));
    const add = state.X.map((_, i) => element("button", { type: "button", onclick: () => addToken(ui, i) }, `Add a token to sequence ${i + 1}`));
    const n = state.X.length;
    const more = element("button", { type: "button", disabled: n >= 4, onclick: () => ui.change({ X: [...ui.state.X, [[0.5, 0.5], [-0.5, 0.5]]], z: [...ui.state.z, [0, 1]], scores: [...ui.state.scores, [1, 0]] }) }, "Add a sequence");
    const fewer = element("button", { type: "button", disabled: n < 2, onclick: () => ui.change({ X: ui.state.X.slice(0, -1), z: ui.state.z.slice(0, -1), scores: ui.state.scores.slice(0, -1) }) }, "Remove the last sequence");
    body.replaceChildren(element("table", {}, head, ...rows(state, run), ...queries), element("p", { class: "live-bar" }, ...add, more, fewer),
      element("div", { class: "live-controls" }, matrix("W0", "W at the start"), matrix("K0", "K at the start"), matrix("Q0", "Q at the start")));
    if (focus) body.querySelector(`[aria-label="${focus}"]`)?.focus();
  }
  return { element: box, show };
}

function summary(state, run) {
  const parts = Object.entries(run.sides).map(([name, side]) => {
    const right = side.selected.every((t, i) => run.layer.scores[i][t] === run.layer.scores[i][run.optimal[i]]);
    const sure = Math.min(...attentionOf(run.layer, matrixOf(side.weights)).map((s) => Math.max(...s)));
    const which = side.selected.map((t) => t + 1).join(" and ");
    const words = `${NAMES[name]} selects token${state.X.length > 1 ? "s" : ""} ${which} (${right ? "optimal" : "not all optimal"}), with probability ${sure < 0.9999 ? shortNumber(sure) : "above 0.9999"}`;
    if (side.svm.status !== "solved") return `${words}; the ${state.tokens} tokens cannot be separated: no SVM direction.`;
    return `${words}; correlation with their ${NORMS[name]} SVM ${Number.isNaN(side.now) ? "undefined" : side.now.toFixed(5)}.`;
  });
  return `After ${run.step.toLocaleString("en")} of ${state.steps.toLocaleString("en")} steps: ${parts.join(" ")}`;
}

function python(state) {
  const { f, data } = instancePython(state);
  const rule = state.rule === "normalised" ? `sv.dynamics.normalized(${state.rate})` : `sv.dynamics.gradient_descent(${state.rate})`;
  const starts = { W: `sv.attention.Direct(np.array(${f(state.W0)}, float))`, KQ: `sv.attention.Factored(np.array(${f(state.K0)}, float), np.array(${f(state.Q0)}, float))` };
  const sides = Object.keys(NAMES).filter((name) => state.show === "both" || state.show === name);
  const tokens = state.tokens === "optimal" ? "p.optimal" : "run.selected";
  return ["import numpy as np", "import svmlib as sv", "", ...data, `rule = ${rule}`,
    ...sides.flatMap((name) => ["", `run = sv.dynamics.train(p, ${starts[name]}, rule, ${state.steps}, loss="${state.loss}")`,
      `svm = sv.svm.attention_svm(p, ${tokens}, norm="${name === "W" ? "fro" : "nuc"}")`,
      `print("${NAMES[name]}", run.selected, sv.compare.correlation(run.W[-1], svm.W))`]), ""].join("\n");
}
