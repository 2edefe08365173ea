// Composition: a head with a dial, the attention it asks for, and the attention that training finds.

import { logSoftmax } from "./attention.mjs";
import { typedNumber } from "./figure.mjs";
import { bestMixture, mixtureMargin, trainMixture } from "./heads.mjs";
import { axes, element, legend, shortNumber } from "./plot.mjs";

export const figure = { start, total: (state) => state.steps, advance, build, summary, python };

const RECORDS = 24; // a decade of steps
const DIALS = Array.from({ length: 101 }, (_, k) => 10 ** (-2 + k / 33));

function start(state) {
  const logits = state.scores.map((_, t) => state.start[t] ?? 0);
  const run = { step: 0, logits, best: bestMixture(state.scores, state.lambda), records: [], next: 0, state };
  record(run);
  return run;
}

function record(run) {
  run.records.push({ step: run.step, logits: [...run.logits] });
  run.next = Math.max(run.step + 1, Math.ceil(run.step * 10 ** (1 / RECORDS)));
}

function advance(run, count) {
  const { scores: gamma, lambda, rate, rule } = run.state;
  for (let left = count; left > 0; ) {
    const n = Math.min(left, run.next - run.step);
    trainMixture(run.logits, n, { gamma, lambda, rate, normalized: rule === "normalised" });
    run.step += n;
    left -= n;
    if (run.step >= run.next) record(run);
  }
}

/** Logits split in two: what orders the kept tokens stays finite, the lead over masked ones grows. */
function split(run) {
  const kept = run.best.map((s) => s > 0), mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const level = mean(run.logits.filter((_, t) => kept[t]));
  const masked = run.logits.filter((_, t) => !kept[t]);
  return { kept, level, lead: masked.length ? level - Math.max(...masked) : NaN };
}

function build(ui) {
  const bars = axes({ title: "Attention: trained, and the sparsemax", ticks: false, label: "Trained attention beside the sparsemax prediction", height: 280 });
  const logits = axes({ title: "Logits relative to the kept tokens", xlog: true, xlabel: "step", ylabel: "logit", label: "Logits against the step", height: 280 });
  const dial = axes({ title: "The dial: best attention", xlog: true, xlabel: "curvature λ", ylabel: "probability", label: "Best attention against the curvature", height: 280 });
  const table = scoresTable(ui);
  ui.plots.append(bars.svg, logits.svg, dial.svg, legend([
    ["W", "trained, kept token"], ["token", "trained, masked token"], ["KQ", "sparsemax: dashes"], ["guide", "predicted finite part, this λ"],
  ]), table.element);
  return (state, run) => {
    drawBars(bars, state, run);
    drawLogits(logits, run);
    drawDial(dial, state, run);
    table.show(state);
  };
}

function drawBars(plot, state, run) {
  const T = state.scores.length, s = logSoftmax(run.logits).map(Math.exp), kept = new Set();
  plot.range([0.4, T + 0.6], [-0.09, 1.08]);
  s.forEach((p, t) => {
    for (const part of ["", "-best", "-name", "-value"]) kept.add(`bar-${t}${part}`);
    plot.bar(`bar-${t}`, `fill ${run.best[t] > 0 ? "W" : "token"}`, t + 0.65, t + 1.35, 0, p);
    plot.line(`bar-${t}-best`, "KQ", [t + 0.55, t + 1.45], [run.best[t], run.best[t]]);
    plot.text(`bar-${t}-name`, "", t + 1, -0.07, String(t + 1)).setAttribute("text-anchor", "middle");
    plot.text(`bar-${t}-value`, "small", t + 1, Math.max(p, run.best[t]), shortNumber(p, 2), 0, -4).setAttribute("text-anchor", "middle");
  });
  plot.drop("bar-", kept);
}

function drawLogits(plot, run) {
  const { kept } = split(run), steps = run.records.map((r) => Math.max(r.step, 0.7));
  const rows = run.records.map((r) => {
    const level = r.logits.reduce((sum, l, t) => sum + (kept[t] ? l : 0), 0) / kept.filter(Boolean).length;
    return r.logits.map((l) => l - level);
  });
  // the finite part that the sparsemax predicts: logarithms of its probabilities, centred
  const logs = run.best.map((s) => Math.log(s)), centre = logs.filter((_, t) => kept[t]).reduce((a, b) => a + b, 0) / kept.filter(Boolean).length;
  const all = [...rows.flat(), ...logs.filter((_, t) => kept[t]).map((l) => l - centre)];
  plot.range([0.7, Math.max(10, run.step)], [Math.min(-1, ...all) * 1.05, Math.max(1, ...all) * 1.05]);
  const marks = new Set();
  kept.forEach((k, t) => {
    marks.add(`logit-${t}`);
    plot.line(`logit-${t}`, k ? "W" : "token", steps, rows.map((r) => r[t]));
    if (!k) return;
    marks.add(`finite-${t}`);
    plot.line(`finite-${t}`, "guide", [0.7, 1e9], [logs[t] - centre, logs[t] - centre]);
  });
  for (const prefix of ["logit-", "finite-"]) plot.drop(prefix, marks);
}

function drawDial(plot, state, run) {
  plot.range([DIALS[0], DIALS.at(-1)], [0, 1.05]);
  const best = DIALS.map((lambda) => bestMixture(state.scores, lambda)), marks = new Set();
  const s = logSoftmax(run.logits).map(Math.exp);
  state.scores.forEach((_, t) => {
    marks.add(`best-${t}`).add(`now-${t}`);
    plot.line(`best-${t}`, "KQ", DIALS, best.map((b) => b[t]));
    plot.dot(`now-${t}`, `fill ${run.best[t] > 0 ? "W" : "token"}`, state.lambda, s[t], 4);
  });
  for (const prefix of ["best-", "now-"]) plot.drop(prefix, marks);
  plot.line("lambda", "guide", [state.lambda, state.lambda], [0, 2]);
}

function scoresTable(ui) {
  const body = element("div", {});
  const box = element("details", { ontoggle: () => ui.redraw() }, element("summary", {}, "Scores and start; add and remove tokens"), body);
  let shown = "";
  const row = (key, words, state) => element("tr", {}, element("th", { scope: "row" }, words), ...state.scores.map((_, t) =>
    element("td", {}, typedNumber({ value: state[key][t] ?? 0, "aria-label": `${words} of token ${t + 1}` }, (x) => {
      const list = ui.state.scores.map((__, k) => ui.state[key][k] ?? 0);
      list[t] = x;
      ui.change({ [key]: list });
    }))));
  function show(state) {
    const key = box.open ? JSON.stringify([state.scores, state.start]) : "";
    if (key === shown) return;
    shown = key;
    if (!box.open) return body.replaceChildren();
    const focus = document.activeElement?.getAttribute?.("aria-label"), T = state.scores.length;
    const head = element("tr", {}, element("th", {}, "token"), ...state.scores.map((_, t) => element("th", { scope: "col" }, String(t + 1))));
    body.replaceChildren(element("table", {}, head, row("scores", "score", state), row("start", "logit at the start", state)), element("p", { class: "live-bar" },
      element("button", { type: "button", disabled: T >= 8, onclick: () => ui.change({ scores: [...ui.state.scores, 0] }) }, "Add a token"),
      element("button", { type: "button", disabled: T < 3, onclick: () => ui.change({ scores: ui.state.scores.slice(0, -1), start: ui.state.start.slice(0, ui.state.scores.length - 1) }) }, "Remove the last token")));
    if (focus) body.querySelector(`[aria-label="${focus}"]`)?.focus();
  }
  return { element: box, show };
}

function summary(state, run) {
  const s = logSoftmax(run.logits).map(Math.exp), { kept, lead } = split(run);
  const off = Math.max(...s.map((p, t) => Math.abs(p - run.best[t])));
  const names = kept.flatMap((k, t) => (k ? [t + 1] : []));
  const short = mixtureMargin(run.best, state.scores, state.lambda) - mixtureMargin(s, state.scores, state.lambda);
  const masked = Number.isNaN(lead) ? "no token is masked, so all logits stay finite" : `the kept tokens lead the masked ones by ${shortNumber(lead)}, and the lead grows for ever`;
  return `After ${run.step.toLocaleString("en")} of ${state.steps.toLocaleString("en")} steps at λ = ${shortNumber(state.lambda)}: the sparsemax keeps ${names.length} of ${kept.length} tokens (${names.join(", ")}); trained attention is within ${shortNumber(off)} of it, its margin ${shortNumber(Math.max(0, short))} short of the best. In the logits ${masked}.`;
}

function python(state) {
  const T = state.scores.length, start = state.scores.map((_, t) => state.start[t] ?? 0);
  return `import numpy as np
import svmlib as sv

head = sv.attention.quadratic(${JSON.stringify(state.scores)}, ${state.lambda})
p = sv.data.Problem(np.eye(${T})[None], [[1.0]], [1], head=head)
start = sv.attention.Direct(np.array(${JSON.stringify(start)}, float)[:, None])
run = sv.dynamics.train(p, start, sv.dynamics.${state.rule === "normalised" ? "normalized" : "gradient_descent"}(${state.rate}), ${state.steps})
print("trained  ", sv.attention.probabilities(p, run.W[-1]).round(4))
print("sparsemax", sv.attention.sparsemax(np.array(${JSON.stringify(state.scores)}) / ${2 * state.lambda}).round(4))
`;
}
