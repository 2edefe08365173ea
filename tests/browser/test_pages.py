"""The built site as a reader's browser shows it."""

from __future__ import annotations

import io
import os
import re

import pytest
from chapters import SITE, pages, source
from looking import FORMULAS, RAW_TEX, too_wide, violations, weight
from PIL import Image

BUDGET = 1_500_000


@pytest.mark.parametrize("name", [*pages(), "search", "genindex"])
def test_page(visit, name):
    """One visit, all that is asked of every page; a failure lists everything that is wrong."""
    page, log = visit(f"{name}.html")
    page.wait_for_load_state("networkidle")
    problems = {
        "console": log.errors,
        "from other hosts": log.offsite,
        "not fetched": log.failed + [r.url for r in log.responses if r.status >= 400],
        "needs a server": log.asked,
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
    # MathJax draws a formula with dozens of elements, hidden from assistive technology, and gives it a MathML
    # twin; one letter in their place has the same colours and halves the time
    page.evaluate("document.querySelectorAll('mjx-container').forEach((e) => e.replaceChildren('x'))")
    page.set_viewport_size({"width": 1280, "height": 900})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        page.wait_for_timeout(350)  # colours fade
        problems[f"axe, {scheme}"] = violations(page)
    if name in pages()[:-1]:
        page.locator("a.right-next").click(trial=True)  # within reach; another test follows it
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


@pytest.mark.parametrize(("scheme", "faint"), [("light", "rgb(150, 150, 150)"), ("dark", "rgb(90, 90, 90)")])
def test_one_faint_word_is_seen(visit, scheme, faint):
    """Contrast is measured for each kind of text: a word that differs is a kind of its own."""
    page, _ = visit(f"{pages()[1]}.html", scheme=scheme, formulas=False)
    word = page.locator("article section p, article section li").nth(5)
    assert violations(page) == []
    for style in (f"color: {faint}", f"background: {faint}; color: rgb(120, 120, 120)", "opacity: 0.3"):
        word.evaluate("(e, style) => e.setAttribute('style', style)", style)
        assert any("color-contrast" in v for v in violations(page)), style
        word.evaluate("(e) => e.removeAttribute('style')")
    assert violations(page) == []


def test_what_only_a_server_can_do_is_seen(visit):
    page, log = visit(f"{pages()[0]}.html", formulas=False)
    assert log.asked == []
    page.evaluate("fetch('index.html').then(() => null)")
    assert [url.rsplit("/", 1)[1] for url in log.asked] == ["index.html"]


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


def test_next_leads_through_the_whole_book_on_the_disk(visit):
    """Opened without a server; formulas are looked at elsewhere, so that this walk need not wait for them."""
    home, order = f"{SITE.as_uri()}/", pages()
    page, log = visit(f"{order[0]}.html", home=home, formulas=False)
    for name in order[1:]:
        page.locator("a.right-next").click()
        page.wait_for_url(f"{home}{name}.html")
        assert page.locator("article h1").count() == 1
        assert (name, log.errors, log.offsite, log.failed) == (name, [], [], [])
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
    page, _ = visit(f"{name}.html", formulas=False)
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
        page, _ = visit(f"{first_figure()}.html", scheme=scheme, formulas=False)
        figure = page.locator("article figure img").first
        figure.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('article figure img').complete")
        pixels = Image.open(io.BytesIO(figure.screenshot())).convert("L")
        means[scheme] = sum(i * n for i, n in enumerate(pixels.histogram())) / (pixels.width * pixels.height)
    assert means["light"] > 200 and means["dark"] < 70


def on_the_disk() -> list[str]:
    """Pages that are typeset without a server: two, or all. `needs a server` holds for every page."""
    chapters = pages(numbered=True)
    return [pages()[0], *chapters] if os.environ.get("SVMBOOK_TESTS") == "all" else [pages()[0], chapters[0]]


@pytest.mark.parametrize("name", on_the_disk())
def test_works_from_the_disk(visit, name):
    page, log = visit(f"{name}.html", home=f"{SITE.as_uri()}/")
    assert (log.errors, log.offsite, log.failed, log.asked) == ([], [], [], [])
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
