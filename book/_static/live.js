// Starts the page's live figures from the state that the build saved in it: no kernel, no other file, no other
// host. Where this fails, or without scripts, the picture that stands in a figure's place stays.
(function () {
  "use strict";
  const STATE = 'script[type="application/vnd.jupyter.widget-state+json"]';
  const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';
  const modules = new Map(); // text of a module -> promise of its default export
  const styles = new Set();

  function load(text) {
    if (!modules.has(text)) {
      const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
      modules.set(text, import(url).then((m) => m.default).finally(() => URL.revokeObjectURL(url)));
    }
    return modules.get(text);
  }

  // What a figure asks of a widget's model, where no kernel listens.
  class Model {
    constructor(state) { this.state = structuredClone(state); this.listeners = new Map(); this.host = "page"; }
    get(name) { return this.state[name]; }
    set(name, value) {
      this.state[name] = value;
      for (const f of this.listeners.get(`change:${name}`) || []) f();
    }
    save_changes() {}
    on(name, f) { this.listeners.set(name, [...(this.listeners.get(name) || []), f]); }
    off(name, f) { this.listeners.set(name, (this.listeners.get(name) || []).filter((g) => g !== f)); }
  }

  async function start() {
    const saved = document.querySelector(STATE);
    const views = [...document.querySelectorAll(`.live-mount ${VIEW}`)];
    if (!saved || !views.length) return;
    const all = JSON.parse(saved.textContent).state;
    for (const view of views) {
      const mount = view.parentElement;
      try {
        const { state } = all[JSON.parse(view.textContent).model_id];
        const front = await load(state._esm);
        if (!styles.has(state._css)) {
          styles.add(state._css);
          document.head.append(Object.assign(document.createElement("style"), { textContent: state._css }));
        }
        const el = document.createElement("div");
        const picture = (mount.closest("figure") || mount.parentElement).querySelector("img");
        mount.append(el);
        front.render({ model: new Model(state), el });
        if (picture) picture.hidden = true;
      } catch (error) {
        console.error("A live figure could not start; its picture stays.", error);
      }
    }
    document.documentElement.dataset.live = "ready";
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
