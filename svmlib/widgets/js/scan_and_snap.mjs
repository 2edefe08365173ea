// Scan and snap: attention of one class as a race of bars, over time, and the clock of the decoder.

import { typedNumber } from "./figure.mjs";
import { axes, element, legend, shortNumber } from "./plot.mjs";
import { differOnlyIn } from "./state.mjs";
import { advanceScan, ascentOf, attentionOn, decoderSpeed, readAttention, startScan, tokenProcess, transitionTime } from "./scansnap.mjs";

const RECORDS = 30; // a decade of steps
const BARS = 14;

export const figure = { start, total: (state) => state.steps, advance, build, summary, python, mend, update };

const LEAST = 0.001; // what is no frequency at all for a token of the own class would leave the class empty

/** Rows of equal length, as many classes in both tables, a vocabulary that holds all tokens. */
function mend(state) {
  const C = state.own.length, k = Math.max(...state.own.map((r) => r.length));
  const m = state.common[0].length;
  const own = state.own.map((r) => Array.from({ length: k }, (_, j) => Math.max(LEAST, r[j] ?? LEAST)));
  const common = own.map((_, c) => Array.from({ length: m }, (_, j) => state.common[c]?.[j] ?? state.common[0][j]));
  const needed = m + C * k + C + (state.oneQuery ? 1 : C);
  return { ...state, own, common, vocabulary: Math.max(needed, state.vocabulary), shown: Math.min(C, state.shown) };
}

function frequencies({ common, own }) {
  return own.map((mine, c) => [...common[c], ...own.flatMap((row, j) => row.map((p) => (j === c ? p : 0)))]);
}

function start(state) {
  const process = tokenProcess(frequencies(state), state.oneQuery, state.vocabulary);
  const run = startScan(process);
  const m = state.common[0].length, k = state.own[0].length;
  const names = Array.from({ length: process.L }, (_, l) => (l < m ? `common ${l + 1}` : `own ${((l - m) % k) + 1}`));
  const sim = { process, run, names, records: [], next: 0, get step() { return run.step; }, rates: state };
  record(sim);
  return sim;
}

function update(state, before) {
  return differOnlyIn(state, before, ["shown"]);
}

function record(sim) {
  const up = ascentOf(sim.process, sim.run);
  const s = Array.from({ length: sim.process.C }, (_, c) => attentionOn(sim.process, sim.run.z, c));
  sim.records.push({ step: sim.run.step, loss: up.loss, sent: up.sent, s });
  sim.next = Math.max(sim.run.step + 1, Math.ceil(sim.run.step * 10 ** (1 / RECORDS)));
}

function advance(sim, count) {
  const end = sim.run.step + count;
  while (sim.run.step < end && !sim.run.failed) {
    advanceScan(sim.process, sim.run, Math.min(end, sim.next) - sim.run.step, sim.rates);
    if (sim.run.step >= sim.next) record(sim);
  }
  if (sim.run.failed) sim.run.step = end; // nothing more will come
}

/** What a step moves in the long run: momentum makes each gradient count 1 / (1 - momentum) times. */
const effective = (state) => state.decoderRate / (1 - state.momentum);

function build(ui) {
  const race = axes({ title: "Attention, sorted", ticks: false, label: "Attention of the class shown, one bar a token, sorted", height: 300 });
  const time = axes({ title: "Attention over time", xlog: true, xlabel: "step", ylabel: "attention", label: "Attention on each token of the class against the step", height: 300 });
  const clock = axes({ title: "What the decoder sends down", xlog: true, xlabel: "step", ylabel: "share of its peak", label: "Gradient sent to attention, and the theory's speed, against the step", height: 260 });
  const sparse = axes({ title: "Sparser, and for how long?", xlog: true, xlabel: "step", ylabel: "entropy, share", label: "Entropy on own tokens and attention on common tokens against the step", height: 260 });
  const table = probabilities(ui);
  ui.plots.append(race.svg, time.svg, clock.svg, sparse.svg, legend([
    ["opt", "own tokens"], ["token", "common tokens"], ["W", "sent down, measured"], ["KQ", "speed of the theory"], ["guide", "predicted transition"], ["plain", "entropy on own tokens (nats)"],
  ]), table.element);
  return (state, sim) => {
    const now = attentionOn(sim.process, sim.run.z, state.shown - 1);
    drawRace(race, state, sim, now);
    drawTimes({ time, clock, sparse }, state, sim, now);
    table.show(state);
  };
}

function drawRace(plot, state, sim, now) {
  const c = state.shown - 1, first = sim.records[0].s[c];
  const mine = [...now.keys()].filter((l) => sim.process.P[c][l] > 0).sort((a, b) => now[b] - now[a] || a - b).slice(0, BARS);
  const most = Math.max(...mine.map((l) => Math.max(now[l], first[l])));
  plot.range([-0.42 * most, 1.12 * most], [0, BARS]);
  const kept = new Set();
  mine.forEach((l, place) => {
    const y = BARS - 1 - place, key = `bar-${l}`;
    for (const part of ["", "-name", "-first", "-value"]) kept.add(key + part);
    plot.bar(key, `fill bar ${sim.process.common[l] ? "token" : "opt"}`, 0, now[l], y + 0.15, y + 0.85);
    plot.line(`${key}-first`, "guide solid", [first[l], first[l]], [y + 0.05, y + 0.95]);
    plot.text(`${key}-name`, "small", 0, y + 0.3, sim.names[l], -6).setAttribute("text-anchor", "end");
    plot.text(`${key}-value`, "small", Math.max(now[l], first[l]), y + 0.3, now[l].toFixed(3), 5);
  });
  plot.drop("bar-", kept);
}

function drawTimes({ time, clock, sparse }, state, sim, now) {
  const c = state.shown - 1, { process, records } = sim;
  const steps = records.map((r) => Math.max(r.step, 0.7)), end = Math.max(10, sim.run.step);
  const x = [0.7, end];
  time.range(x, [0, 1.05 * Math.max(...records.flatMap((r) => [...r.s[c]]))]);
  const kept = new Set();
  for (let l = 0; l < process.L; l++) {
    if (!(process.P[c][l] > 0)) continue;
    kept.add(`token-${l}`);
    time.line(`token-${l}`, process.common[l] ? "token thin" : "opt thin", [...steps, end], [...records.map((r) => r.s[c][l]), now[l]]);
  }
  time.drop("token-", kept);

  const largest = Math.max(...records.map((r) => r.sent), 1e-300);
  const rate = effective(state), C = process.C, M = process.M, turn = transitionTime(M, C, rate);
  const grid = Array.from({ length: 120 }, (_, k) => 0.7 * (end / 0.7) ** (k / 119));
  const speed = grid.map((t) => decoderSpeed(t, M, C, rate)), fastest = decoderSpeed(turn, M, C, rate);
  clock.range(x, [0, 1.1]);
  clock.line("sent", "W", steps, records.map((r) => r.sent / largest));
  clock.line("speed", "KQ", grid, speed.map((r) => r / fastest));
  clock.line("turn", "guide", [turn, turn], [0, 1.1]);

  const read = records.map((r) => readAttention(process, r.s[c]));
  sparse.range(x, [0, Math.max(1, 1.1 * Math.max(...read.map((r) => r.entropy)))]);
  sparse.line("entropy", "plain", steps, read.map((r) => r.entropy));
  sparse.line("common", "token", steps, read.map((r) => r.common));
  sparse.line("turn", "guide", [turn, turn], [0, 10]);
}

function probabilities(ui) {
  const body = element("div", {});
  const box = element("details", { ontoggle: () => ui.redraw() }, element("summary", {}, "All frequencies; add and remove tokens and classes"), body);
  let shown = "";
  const cell = (key, c, j, words) => element("td", {}, typedNumber({ value: ui.state[key][c][j], min: 0, max: 1, "aria-label": words }, (x) => {
    const copy = structuredClone(ui.state[key]);
    copy[c][j] = x;
    ui.change({ [key]: copy });
  }));
  const button = (words, off, patch) => element("button", { type: "button", disabled: off, onclick: () => ui.change(patch()) }, words);
  function table(key, name) {
    const width = ui.state[key][0].length;
    const head = element("tr", {}, element("th", {}, name), ...Array.from({ length: width }, (_, j) => element("th", { scope: "col" }, String(j + 1))));
    const rows = ui.state[key].map((row, c) => element("tr", {}, element("th", { scope: "row" }, `class ${c + 1}`), ...row.map((_, j) => cell(key, c, j, `${name} ${j + 1} in class ${c + 1}`))));
    return element("table", {}, head, ...rows);
  }
  const wider = (key, value) => ({ [key]: ui.state[key].map((row) => [...row, value]) });
  const narrower = (key) => ({ [key]: ui.state[key].map((row) => row.slice(0, -1)) });
  function show(state) {
    const key = box.open ? JSON.stringify([state.common, state.own]) : "";
    if (key === shown) return;
    shown = key;
    if (!box.open) return body.replaceChildren();
    const focus = document.activeElement?.getAttribute?.("aria-label");
    const { common, own } = state;
    body.replaceChildren(
      element("p", {}, "Frequencies of tokens, scaled to sum 1 within a class."), table("common", "common token"), table("own", "own token"),
      element("p", { class: "live-bar" },
        button("Add a common token", common[0].length >= 10, () => wider("common", 0.5)), button("Remove a common token", common[0].length < 1, () => narrower("common")),
        button("Add own tokens", own[0].length >= 10, () => wider("own", 0.2)), button("Remove own tokens", own[0].length < 2, () => narrower("own")),
        button("Add a class", own.length >= 4, () => ({ own: [...own, own[0]], common: [...common, common[0]] })),
        button("Remove a class", own.length < 3, () => ({ own: own.slice(0, -1), common: common.slice(0, -1) }))),
    );
    if (focus) body.querySelector(`[aria-label="${focus}"]`)?.focus();
  }
  return { element: box, show };
}

function summary(state, sim) {
  const c = state.shown - 1, now = attentionOn(sim.process, sim.run.z, c);
  const [then, here] = [sim.records[0].s[c], now].map((s) => readAttention(sim.process, s));
  const best = [...now.keys()].filter((l) => !sim.process.common[l]).reduce((a, b) => (now[b] > now[a] ? b : a), sim.process.common.indexOf(false));
  const turn = transitionTime(sim.process.M, sim.process.C, effective(state));
  const failed = sim.run.failed ? " The weights left the finite numbers: smaller learning rates help." : "";
  return `After ${sim.run.step.toLocaleString("en")} of ${state.steps.toLocaleString("en")} steps, class ${state.shown}: common tokens hold ${shortNumber(100 * here.common)} % of attention (at first ${shortNumber(100 * then.common)} %); the leader of the own tokens is ${sim.names[best]} with ${shortNumber(100 * now[best])} % (at first ${shortNumber(100 * sim.records[0].s[c][best])} %). Entropy on own tokens ${here.entropy.toFixed(3)} nats, at first ${then.entropy.toFixed(3)}. Loss ${shortNumber(ascentOf(sim.process, sim.run).loss)}. The predicted transition is at step ${shortNumber(turn)}.${failed}`;
}

function python(state) {
  const P = frequencies(state), C = P.length, L = P[0].length, f = JSON.stringify;
  const queries = state.oneQuery ? 1 : C;
  return `import numpy as np
import svmlib as sv

P = np.zeros((${C}, ${state.vocabulary}))
P[:, :${L}] = ${f(P)}
process = sv.scansnap.TokenProcess(P, query=${f(P.map((_, c) => L + (state.oneQuery ? 0 : c)))}, label=${f(P.map((_, c) => L + queries + c))})
run = sv.scansnap.simulate(process, ${state.decoderRate}, ${state.attentionRate}, ${state.steps}, momentum=${state.momentum})
print(run.s[0, -1, ${state.shown - 1}, :${L}].round(3), run.loss[0, -1])
print("transition", sv.scansnap.transition(${state.vocabulary}, ${C}, ${effective(state)}))
`;
}
