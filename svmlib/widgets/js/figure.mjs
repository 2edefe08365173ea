// What all live figures share: state, controls, the run, the summary, links. A figure itself is
//   start(state) -> run            a fresh run, with its number of completed steps in `run.step`
//   total(state) -> number         steps after which a run is finished; 0 where nothing runs
//   advance(run, count)            takes steps, in place
//   build(ui) -> draw(state, run)  makes plots once, and says how they are drawn
//   summary(state, run, ui) -> string  what a reader who does not see the plots should know
//   python(state) -> string        the same with svmlib
//   mend(state) -> state           what fields owe each other (optional)
//   update(state, before, run) -> boolean   whether the run stands, with what had to be changed (optional)

import { addressWith, cleanState, initialState, stateFromAddress, stateFromText } from "./state.mjs";
import { element, shortNumber } from "./plot.mjs";

const BUDGET = 9; // ms of a frame for computing: the rest of 16 is for drawing
const SPEEDS = { 1: "1 step a frame", 10: "10 steps a frame", 100: "100 steps a frame", 1000: "1,000 steps a frame" };

/** The front end of a widget (anywidget's `render`), for a figure. */
export function live(figure) {
  return {
    render({ model, el }) {
      return mount(figure, model, el);
    },
  };
}

function mount(figure, model, el) {
  const spec = model.get("spec");
  const inPage = model.host === "page"; // then the address belongs to the book, else to JupyterLab
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const mend = (state) => (figure.mend ? figure.mend(state) : state);
  const clean = (raw) => {
    const { state, mended } = cleanState(spec, raw);
    return { state: mend(state), mended };
  };
  const linked = inPage ? stateFromAddress(location.href, spec) : undefined;
  let state = linked ? mend(linked.state) : clean(model.get("state")).state;
  let run, mode = "idle", frame = 0, visible = true, speed = 10, saving = 0, said = 0, telling = 0;

  const ui = {
    spec, inPage,
    /** Numbers that Python brings along. */
    table: model.get("table"),
    get state() { return state; },
    get run() { return run; },
    /** Change fields of the state: the run starts again, and is taken to its end. */
    change(patch) {
      adopt({ ...state, ...patch }, "settle");
    },
    note(words) {
      note.textContent = words;
    },
    /** Draw again without computing: a choice of view that is no part of the state. */
    redraw: () => schedule(),
  };

  // JupyterLab would take keys that are meant for the figure: the attribute is for its shortcuts
  const root = element("section", {
    class: "live", "aria-label": spec.title, "data-lm-suppress-shortcuts": "true", onkeydown: (e) => e.stopPropagation(),
  });
  const plots = element("div", { class: "live-plots" });
  const summary = element("p", { class: "live-summary" });
  const status = element("p", { class: "live-hidden", role: "status", "aria-live": "polite" });
  const note = element("p", { class: "live-note", role: "status" });
  const draw = (ui.plots = plots, figure.build(ui));
  const buttons = makeButtons();
  const controls = makeControls(spec, ui);
  root.append(buttons.bar, plots, summary, status, controls.form, note);
  el.append(root);

  function makeButtons() {
    const play = element("button", { type: "button", class: "live-main", onclick: toggle }, "Run");
    const step = element("button", { type: "button", onclick: () => { stop(); advance(1); show(); } }, "One step");
    const pace = element("select", { "aria-label": "Speed", onchange: (e) => { speed = Number(e.target.value); } },
      ...Object.entries(SPEEDS).map(([value, words]) => element("option", { value, selected: value === "10" }, words)));
    const reset = element("button", { type: "button", onclick: () => adopt(initialState(spec), "settle") }, "Reset");
    const code = element("button", { type: "button", onclick: () => copy(figure.python(state), "Python") }, "Copy as Python");
    const link = element("button", { type: "button", onclick: () => copy(addressWith(location.href, spec, state), "The link") }, "Copy link");
    const runs = figure.total(state) > 0 ? [play, step, pace] : [];
    const bar = element("div", { class: "live-bar", role: "group", "aria-label": "Run and share" }, ...runs, reset, code, ...(inPage ? [link] : []));
    return { bar, play };
  }

  async function copy(text, what) {
    note.replaceChildren();
    try {
      await navigator.clipboard.writeText(text);
      note.textContent = `${what} is in the clipboard.`;
    } catch {
      const area = element("textarea", { readonly: true, rows: Math.min(12, text.split("\n").length), "aria-label": what });
      area.value = text;
      note.append("The browser does not allow copying here; this is the text:", area);
      area.select();
    }
  }

  const finished = () => run.step >= figure.total(state);

  function advance(count) {
    figure.advance(run, Math.min(count, figure.total(state) - run.step));
  }

  function toggle() {
    if (mode === "play") {
      stop();
      return show();
    }
    if (finished()) run = figure.start(state);
    mode = still.matches ? "settle" : "play";
    schedule();
    tell();
  }

  function stop() {
    mode = "idle";
    cancelAnimationFrame(frame);
    frame = 0;
  }

  function schedule() {
    if (!frame && visible) frame = requestAnimationFrame(tick);
  }

  function tick() {
    frame = 0;
    const until = performance.now() + BUDGET;
    if (mode === "play") {
      for (let left = speed; left > 0 && !finished() && performance.now() < until; left -= 20) advance(Math.min(20, left));
    } else if (mode === "settle") {
      while (!finished() && performance.now() < until) advance(20);
    }
    if (finished()) mode = "idle";
    if (mode === "idle" || !still.matches) show();
    if (mode !== "idle") schedule();
  }

  function show() {
    draw(state, run);
    buttons.play.textContent = mode === "play" ? "Pause" : "Run";
    const words = figure.summary(state, run, ui);
    if (summary.textContent !== words) summary.textContent = words;
    root.dataset.step = run.step;
    root.dataset.mode = mode;
    tell();
  }

  // A screen reader is told of the end of a run and of every change, not of every frame.
  function tell() {
    clearTimeout(telling);
    telling = setTimeout(() => {
      status.textContent = summary.textContent;
      said = performance.now();
    }, mode === "play" ? Math.max(4000 - (performance.now() - said), 500) : 500);
  }

  function adopt(raw, next, { save = true } = {}) {
    stop();
    const cleaned = clean(raw), before = state;
    state = cleaned.state;
    note.replaceChildren();
    if (!run || !figure.update?.(state, before, run)) run = figure.start(state);
    controls.show(state);
    mode = next;
    schedule();
    if (save) {
      clearTimeout(saving);
      saving = setTimeout(publish, 250);
    }
    return cleaned;
  }

  function publish() {
    if (inPage) {
      try {
        history.replaceState(history.state, "", addressWith(location.href, spec, state));
      } catch {
        // pages from a disk may not change their address in some browsers: "Copy link" still works
      }
    }
    model.set("state", structuredClone(state));
    model.save_changes();
  }

  const follow = () => {
    const asked = model.get("state");
    if (JSON.stringify(clean(asked).state) !== JSON.stringify(state)) adopt(asked, "settle", { save: false });
  };
  model.on("change:state", follow);
  const watcher = new IntersectionObserver((entries) => {
    visible = entries.at(-1).isIntersecting;
    if (visible) schedule();
  });
  watcher.observe(root);

  // another figure of the page opens an instance here
  root.addEventListener("live-open", (e) => adopt(stateFromText(spec, e.detail)?.state, "settle"));
  const first = adopt(state, "settle", { save: false });
  const mended = [...(linked?.mended ?? []), ...first.mended];
  if (linked === null && new URL(location.href).searchParams.has(spec.name)) {
    note.textContent = "The link is of another version of this figure: it opens as in the book.";
  } else if (mended.length) {
    note.textContent = `The link asked for values that are out of bounds (${[...new Set(mended)].join(", ")}); the nearest allowed ones are shown.`;
  }

  return () => {
    stop();
    clearTimeout(saving);
    clearTimeout(telling);
    watcher.disconnect();
    model.off("change:state", follow);
  };
}

/** Native inputs for all fields with a label, in the order of the specification. */
function makeControls(spec, ui) {
  const setters = [];
  const rows = [];
  if (spec.presets) {
    const options = Object.entries(spec.presets).map(([value, { label }]) => element("option", { value }, label));
    const select = element("select", { onchange: (e) => ui.change(initialState(spec, e.target.value)) }, ...options);
    setters.push((state) => { select.value = state.preset; });
    rows.push(element("label", { class: "live-field" }, element("span", {}, spec.presetLabel ?? "Example"), select));
  }
  for (const field of spec.fields) {
    if (!field.label) continue;
    const { row, set } = (field.kind === "choice" ? choiceInput : field.kind === "flag" ? flagInput : numberInput)(field, ui);
    rows.push(row);
    setters.push((state) => set(state[field.name]));
  }
  const form = element("form", { class: "live-controls", onsubmit: (e) => e.preventDefault() }, ...rows);
  return { form, show: (state) => setters.forEach((set) => set(state)) };
}

function choiceInput(field, ui) {
  const options = Object.entries(field.options).map(([value, words]) => element("option", { value }, words));
  const select = element("select", { name: field.name, onchange: (e) => ui.change({ [field.name]: e.target.value }) }, ...options);
  const row = element("label", { class: "live-field" }, element("span", {}, field.label), select);
  return { row, set: (value) => { select.value = value; } };
}

function flagInput(field, ui) {
  const box = element("input", { type: "checkbox", name: field.name, onchange: (e) => ui.change({ [field.name]: e.target.checked }) });
  const row = element("label", { class: "live-field live-flag" }, box, element("span", {}, field.label));
  return { row, set: (value) => { box.checked = value; } };
}

/** A native input for a number, which `commit` gets when it is left or Enter is pressed. */
export function typedNumber(attributes, commit) {
  const done = (e) => {
    const x = Number(e.target.value);
    if (e.target.value.trim() && Number.isFinite(x)) commit(x);
  };
  return element("input", { type: "number", step: "any", ...attributes, onchange: done, onkeydown: (e) => e.key === "Enter" && done(e) });
}

/** A slider for the hand and a number for the keyboard, of one value. */
function numberInput(field, ui) {
  const log = field.scale === "log";
  const inner = log ? Math.log10 : (x) => x;
  const step = field.kind === "integer" && !log ? 1 : (inner(field.max) - inner(field.min)) / 200;
  const tidy = (x) => (field.kind === "integer" ? Math.round(x) : Number(x.toPrecision(3)));
  const slider = element("input", {
    type: "range", min: inner(field.min), max: inner(field.max), step: step || "any", "aria-label": field.label,
    oninput: (e) => ui.change({ [field.name]: tidy(log ? 10 ** Number(e.target.value) : Number(e.target.value)) }),
  });
  const number = typedNumber({ name: field.name, min: field.min, max: field.max }, (x) => ui.change({ [field.name]: x }));
  const row = element("div", { class: "live-field" }, element("label", {}, element("span", {}, field.label), number), slider);
  return {
    row,
    set(value) {
      slider.value = inner(value);
      slider.setAttribute("aria-valuetext", shortNumber(value));
      if (document.activeElement !== number || Number(number.value) !== value) number.value = value;
    },
  };
}
