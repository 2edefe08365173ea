// The phase diagram of global convergence in the plane: shares that Python counted, and instances to open.

import { axes, element, shortNumber } from "./plot.mjs";

export const figure = { start, total: () => 0, advance: () => {}, build, summary, python };

const FATES = ["global", "local", "open"];
const WORDS = { global: "global", local: "local and not global", open: "not saturated" };

function start() {
  return { step: 0 };
}

/** Share in percent of a cell: rows are n = 1, 2, ..., columns T = 2, 3, ... */
function share(table, state, n, T, fate = state.fate) {
  const cell = fate === "feasible" ? table.feasible : table[state.which][fate];
  return cell[n - 1][T - 2];
}

function build(ui) {
  const { table } = ui;
  const N = table.sequences.length, K = table.tokens.length;
  const map = axes({ title: "Share in percent", label: "Map of shares over the numbers of sequences and of tokens", width: 380, height: 250, ticks: false, xlabel: "", ylabel: "" });
  map.range([0.6, K + 1.5], [-0.5, N + 0.5]);
  const detail = axes({ title: "The cell, in percent", label: "Shares of the three outcomes in the chosen cell", height: 250, ticks: false });
  const open = element("p", { class: "live-bar" });
  ui.plots.append(map.svg, detail.svg, open);
  for (let n = 1; n <= N; n++) {
    for (let T = 2; T <= K + 1; T++) {
      const cell = map.bar(`cell-${n}-${T}`, "cell", T - 0.5, T + 0.5, n - 0.5, n + 0.5);
      cell.addEventListener("pointerenter", () => ui.change({ n, T }));
      cell.addEventListener("click", () => ui.change({ n, T }));
    }
  }
  return (state) => {
    for (let n = 1; n <= N; n++) {
      map.text(`row-${n}`, "small", 1.42, n - 0.1, `n = ${n}`).setAttribute("text-anchor", "end");
      for (let T = 2; T <= K + 1; T++) {
        const value = share(table, state, n, T), cell = map.mark(`cell-${n}-${T}`, "rect", { class: `cell${n === state.n && T === state.T ? " chosen" : ""}` });
        cell.style.fill = `color-mix(in srgb, var(--W) ${0.85 * value}%, var(--paper))`;
        const words = map.text(`value-${n}-${T}`, value > 72 ? "inverse" : "", T, n - 0.08, String(Math.round(value)));
        words.setAttribute("text-anchor", "middle");
        words.style.pointerEvents = "none";
        if (n === 1) map.text(`column-${T}`, "small", T, 0.15, T === 2 ? "T = 2" : String(T)).setAttribute("text-anchor", "middle");
      }
    }
    drawDetail(detail, table, state);
    const links = FATES.filter((fate) => table.examples[state.n - 1][state.T - 2][fate]).map((fate) => opener(ui, state, fate));
    const key = `${state.n} ${state.T}`;
    if (open.dataset.key !== key) open.replaceChildren(...links);
    open.dataset.key = key;
  };
}

function drawDetail(plot, table, state) {
  plot.range([0.4, 3.6], [-10, 108]);
  FATES.forEach((fate, k) => {
    const value = share(table, state, state.n, state.T, fate);
    plot.bar(`bar-${fate}`, `fill ${["opt", "KQ", "token"][k]}`, k + 0.65, k + 1.35, 0, value);
    plot.text(`${fate}-name`, "small", k + 1, -8, WORDS[fate]).setAttribute("text-anchor", "middle");
    plot.text(`${fate}-value`, "small", k + 1, value, `${shortNumber(value)} %`, 0, -4).setAttribute("text-anchor", "middle");
  });
}

/** A link that opens an instance in the token plane: of this page, if it has one, else of the page that does. */
function opener(ui, state, fate) {
  const { X, z, scores } = ui.table.examples[state.n - 1][state.T - 2][fate];
  const text = `1;scoring:own;X:${JSON.stringify(X)};z:${JSON.stringify(z)};scores:${JSON.stringify(scores)}`;
  const href = `${ui.table.page}?token-plane=${encodeURIComponent(text)}#fig-token-plane`;
  return element("a", {
    class: "live-open", href,
    onclick: (e) => {
      const there = document.querySelector('section.live[aria-label="Token plane"]');
      if (there) {
        e.preventDefault();
        there.dispatchEvent(new CustomEvent("live-open", { detail: text }));
        there.scrollIntoView({ block: "center" });
      } else if (!ui.inPage) {
        e.preventDefault();
        ui.note("Show sv.widgets.TokenPlane() in a cell of this notebook, and the instance will open there.");
      }
    },
  }, `Open an instance whose run of W is ${WORDS[fate]}`);
}

function summary(state, run, ui) {
  const { table } = ui, { n, T } = state;
  const parts = FATES.map((fate) => `${shortNumber(share(table, state, n, T, fate))} % ${WORDS[fate]}`);
  return `n = ${n} sequence${n > 1 ? "s" : ""} of T = ${T} tokens in the plane: of ${table.trials} random instances ${shortNumber(share(table, state, n, T, "feasible"))} % have optimal tokens that can be separated. Runs of ${state.which === "W" ? "W" : "(K, Q)"}: ${parts.join(", ")}.`;
}

function python(state) {
  return `import svmlib as sv

found = sv.experiments.stored("beyond_planar_phase")  # or sv.experiments.beyond_planar_phase() to count anew
fates = found["${state.which}"][${state.n - 1}, ${state.T - 2}]
print([float((fates == k).mean()) for k in range(3)], "global, local, not saturated")
print("can be separated", found["feasible"][${state.n - 1}, ${state.T - 2}].mean())
`;
}
