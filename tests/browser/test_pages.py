"""The built site as a reader's browser shows it."""

from __future__ import annotations

import gzip
import io
import re
from importlib import resources

import pytest
from chapters import SITE, pages, source
from PIL import Image

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
BUDGET = 1_500_000
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


def weight(log) -> int:
    """Bytes of all responses as a server with compression would send them."""
    total = 0
    for response in log.responses:
        if response.ok:
            body, kind = response.body(), response.headers.get("content-type", "")
            total += len(gzip.compress(body, 6)) if any(k in kind for k in COMPRESSED) else len(body)
    return total


def violations(page) -> list[str]:
    """What axe-core finds serious or critical."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE)
    result = page.evaluate("() => axe.run({resultTypes: ['violations'], preload: false})")
    return [
        f"{v['id']} [{v['impact']}] {node['target']} {node.get('failureSummary', '')[:160]}"
        for v in result["violations"]
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"][:3]
    ]


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


def too_wide(page) -> list[str]:
    """What sticks out to the right of a page that scrolls sideways, and formulas wider than their text."""
    cut = [f"a formula is cut in: {text}" for text in page.evaluate(CUT)]
    if page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0:
        return cut
    return ["the page scrolls sideways", *page.evaluate(STICKS_OUT), *cut]


@pytest.mark.parametrize("name", [*pages(), "search", "genindex"])
def test_page(visit, name):
    """One visit, all that is asked of every page; a failure lists everything that is wrong."""
    page, log = visit(f"{name}.html")
    page.wait_for_load_state("networkidle")
    problems = {
        "console": log.errors,
        "from other hosts": log.offsite,
        "not fetched": log.failed + [r.url for r in log.responses if r.status >= 400],
        "too heavy": [size] if (size := weight(log)) >= BUDGET else [],
    }
    seen = page.evaluate(FORMULAS) if name in pages() else None
    if seen:
        problems["not typeset"] = seen["empty"] + seen["wrong"] + seen["undefined"]
        problems["raw TeX"] = RAW_TEX.findall(seen["prose"])
        if re.search(r"\$[^$]+\$|\{math\}", source(name)) and not seen["typeset"] >= seen["sources"] > 0:
            problems["formulas missing"] = [seen]
    page.evaluate("document.querySelectorAll('article details').forEach((d) => { d.open = true; })")
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_timeout(150)
    problems["360 px"] = too_wide(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    # MathJax draws a formula with dozens of elements, hidden from assistive technology, and gives it a MathML
    # twin; one letter in their place has the same colours and halves the time
    page.evaluate("document.querySelectorAll('mjx-container').forEach((e) => e.replaceChildren('x'))")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        page.wait_for_timeout(350)  # colours fade
        problems[f"axe, {scheme}"] = violations(page)
    assert {what: where for what, where in problems.items() if where} == {}


def test_the_page_checks_can_fail(visit):
    page, log = visit(f"{pages()[0]}.html", width=360)
    page.evaluate(
        """() => {
          const p = document.createElement("p");
          p.innerHTML = 'raw $x_1$ <img src="gone.png"> <b style="display:inline-block;width:900px">w</b>';
          document.querySelector("article").prepend(p);
          console.error("on purpose");
        }"""
    )
    page.wait_for_timeout(200)
    assert "on purpose" in log.errors
    assert too_wide(page)
    assert RAW_TEX.findall(page.evaluate(FORMULAS)["prose"]) == ["$x_1$"]
    assert any("image-alt" in v for v in violations(page))


def test_search_finds_the_attention_svm(visit):
    page, log = visit("search.html?q=attention+svm")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").all_text_contents()
    assert len(found) >= 3
    assert (log.errors, log.offsite) == ([], [])


def test_search_finds_nothing_where_nothing_is(visit):
    page, _ = visit("search.html?q=zeppelin")
    page.wait_for_function(
        "document.querySelector('#search-results p')?.textContent.includes('did not match')"
    )
    assert page.locator("#search-results li a").count() == 0


def test_search_field_leads_to_the_results(visit):
    page, _ = visit(f"{pages()[0]}.html")
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[type=search]").fill("margin")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=margin*")
    page.wait_for_selector("#search-results li a")
    assert page.locator("#search-results li a").count() > 0


def test_next_leads_through_the_whole_book(visit, base):
    order = pages()
    page, _ = visit(f"{order[0]}.html")
    for name in order[1:]:
        page.locator("a.right-next").click()
        page.wait_for_url(f"{base}{name}.html")
    assert page.locator("a.right-next").count() == 0


def test_theme_switch_is_remembered(visit):
    page, _ = visit(f"{pages()[0]}.html")
    switch = page.locator(".article-header-buttons .theme-switch-button")
    seen = set()
    for _ in range(3):
        switch.click()
        seen.add(page.evaluate("document.documentElement.dataset.mode"))
    assert seen == {"light", "dark", "auto"}
    while page.evaluate("document.documentElement.dataset.mode") != "dark":
        switch.click()
    page.locator("a.right-next").click()
    page.wait_for_load_state("load")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_buttons_show_an_icon_and_have_a_name(visit):
    name = next(p for p in pages(numbered=True))
    page, _ = visit(f"{name}.html")
    page.wait_for_function("document.fonts.ready.then(() => true)")
    buttons = page.evaluate(
        """() => [...document.querySelectorAll(".article-header-buttons button:not(.dropdown-item)")]
          .filter((b) => b.offsetParent).map((b) => {
            const icons = [...b.querySelectorAll("i")].filter((i) => i.getBoundingClientRect().width > 5);
            return { name: b.getAttribute("aria-label") || b.title || b.textContent.trim(),
                     icon: icons.length === 1 && getComputedStyle(icons[0], "::before").content !== "none" };
          })"""
    )
    assert len(buttons) >= 5
    assert [b for b in buttons if not (b["name"] and b["icon"])] == []
    assert page.evaluate("document.fonts.check('900 16px \"Font Awesome 6 Free\"')")


def first_figure() -> str:
    return next(p for p in pages(numbered=True) if "  figure:" in source(p))


def test_figures_turn_dark_with_the_page(visit):
    means = {}
    for scheme in ("light", "dark"):
        page, _ = visit(f"{first_figure()}.html", scheme=scheme)
        figure = page.locator("article figure img").first
        figure.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('article figure img').complete")
        pixels = Image.open(io.BytesIO(figure.screenshot())).convert("L")
        means[scheme] = sum(i * n for i, n in enumerate(pixels.histogram())) / (pixels.width * pixels.height)
    assert means["light"] > 200 and means["dark"] < 70


@pytest.mark.parametrize("name", [pages()[0], *pages(numbered=True)])
def test_works_from_the_disk(visit, name):
    page, log = visit(f"{name}.html", home=f"{SITE.as_uri()}/")
    assert (log.errors, log.offsite, log.failed) == ([], [], [])
    seen = page.evaluate(FORMULAS)
    assert seen["empty"] == [] and seen["typeset"] >= seen["sources"]
    page.locator("a.right-next").click()
    page.wait_for_load_state("load")
    assert page.locator("article h1").count() == 1


def test_searches_from_the_disk(visit):
    page, log = visit("search.html?q=margin", home=f"{SITE.as_uri()}/")
    page.wait_for_selector("#search-results li a")
    assert log.offsite == []


def test_first_address_leads_to_the_preface(visit, base):
    page, _ = visit("index.html", typeset=False)
    page.wait_for_url(f"{base}{pages()[0]}.html")
    assert page.locator("article h1").inner_text().startswith("Transformers as Support Vector Machines")


def test_missing_pages_say_so(visit):
    page, log = visit("404.html")
    assert (log.offsite, log.failed, [r.url for r in log.responses if r.status >= 400]) == ([], [], [])
    assert "not found" in page.locator("article").inner_text().lower()
