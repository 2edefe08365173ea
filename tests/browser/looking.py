"""What the tests ask of an open page: its weight, its formulas, its width, its colours."""

from __future__ import annotations

import gzip
import re
from importlib import resources

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
COMPRESSED = ("text/", "javascript", "json", "svg")
RAW_TEX = re.compile(r"\$[^$\n]{1,200}\$|\\\(|\\\[|\\(?:frac|mathbb|Loss|norm|begin|top|gamma|alpha)\b")

FORMULAS = """() => ({
  typeset: document.querySelectorAll("article mjx-container").length,
  sources: document.querySelectorAll("article .math").length,
  empty: [...document.querySelectorAll("article .math")]
    .filter((e) => !e.querySelector("mjx-container")).map((e) => e.textContent.slice(0, 80)),
  wrong: [...document.querySelectorAll("mjx-merror, mjx-container [data-mjx-error]")]
    .map((e) => e.dataset.mjxError || e.title || e.textContent),
  undefined: [...document.querySelectorAll("mjx-mtext[style*=red], mjx-container [mathcolor=red]")]
    .map((e) => e.outerHTML.slice(0, 200)),
  prose: (() => {
    const copy = document.querySelector("article").cloneNode(true);
    for (const e of copy.querySelectorAll("pre, code, mjx-container, script, .cite-page")) e.remove();
    return copy.textContent;
  })(),
})"""

# axe needs four fifths of its time for contrast. What decides it are an element's colours and letters and
# whatever lies behind: elements that agree in all this, and in their ancestors' tags, classes and
# styles, are one kind. Its first and its last visible element are measured.
KINDS = """() => {
  const known = new Map(), numbers = new Map(), kinds = new Map();
  const styles = ["color", "webkitTextFillColor", "textShadow", "fontSize", "fontWeight", "backgroundColor",
    "backgroundImage", "opacity", "display", "visibility", "position", "zIndex", "transform", "filter",
    "mixBlendMode"];
  const kind = (e) => {
    if (!e) return "";
    if (!known.has(e)) {
      const style = getComputedStyle(e), here = styles.map((k) => style[k]).join();
      const text = [kind(e.parentElement), e.tagName, e.getAttribute("class"), here].join("|");
      if (!numbers.has(text)) numbers.set(text, numbers.size);
      known.set(e, numbers.get(text));
    }
    return known.get(e);
  };
  for (const e of document.querySelectorAll("body *")) {
    e.removeAttribute("data-contrast");
    if (e.tagName !== "INPUT" && ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    if (!e.getClientRects().length) continue;
    kinds.set(kind(e), [...(kinds.get(kind(e)) || []).slice(0, 1), e]);
  }
  for (const both of kinds.values()) for (const e of both) e.dataset.contrast = "";
  axe.configure({rules: [{id: "color-contrast", selector: "[data-contrast]"}]});
  return kinds.size;
}"""

STICKS_OUT = """() => {
  const root = document.documentElement, scrolls = (e) => getComputedStyle(e).overflowX !== "visible";
  const held = (e) => {
    for (let p = e.parentElement; p && p !== root; p = p.parentElement) if (scrolls(p)) return true;
    return false;
  };
  return [...document.querySelectorAll("article *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !held(e))
    .map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`).slice(0, 5);
}"""

CUT = """() => {
  const cut = (e) => {
    for (let p = e.parentElement; p && p.tagName !== "ARTICLE"; p = p.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return false;
      if (e.getBoundingClientRect().right > p.getBoundingClientRect().right + 1) return p.clientWidth > 0;
    }
    return false;
  };
  return [...document.querySelectorAll("article mjx-container:not([display])")]
    .filter(cut).map((e) => e.parentElement.textContent.slice(0, 60)).slice(0, 5);
}"""

_sizes: dict[str, int] = {}


def weight(log) -> int:
    """Bytes of all responses as a server with compression would send them; all pages share most of them."""
    for response in log.responses:
        if response.ok and response.url not in _sizes:
            body, kind = response.body(), response.headers.get("content-type", "")
            small = any(k in kind for k in COMPRESSED)
            _sizes[response.url] = len(gzip.compress(body, 6)) if small else len(body)
    return sum(_sizes[response.url] for response in log.responses if response.ok)


def violations(page) -> list[str]:
    """What axe-core finds serious or critical."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE)
    assert page.evaluate(KINDS) > 0
    result = page.evaluate("() => axe.run({resultTypes: ['violations'], preload: false})")
    return [
        f"{v['id']} [{v['impact']}] {node['target']} {node.get('failureSummary', '')[:160]}"
        for v in result["violations"]
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"][:3]
    ]


def too_wide(page) -> list[str]:
    """What sticks out to the right of a page that scrolls sideways, and formulas wider than their text."""
    cut = [f"a formula is cut in: {text}" for text in page.evaluate(CUT)]
    if page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0:
        return cut
    return ["the page scrolls sideways", *page.evaluate(STICKS_OUT), *cut]
