"""Live figures on the built pages: mouse, keys, address, both themes, states drawn at random."""

from __future__ import annotations

import contextlib
import io
import json
import re
from urllib.parse import quote

import pytest
from chapters import SITE
from looking import too_wide, violations

from svmlib.widgets import live

VIEW = re.compile(r'class="live-mount')
SPECS = {
    spec["name"]: spec
    for spec in (json.loads(p.read_text("utf-8")) for p in sorted(live.FOLDER.glob("*.json")))
}
PRELUDE = """async ([source, spec, seed]) => {
  const m = await import("data:text/javascript," + encodeURIComponent(source));
  let a = seed >>> 0;
  const random = () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return m.stateToText(spec, m.randomState(spec, random));
}"""


def found() -> dict[str, str]:
    """Figures and the page that shows each."""
    out = {}
    for path in sorted((SITE / "book").rglob("*.html")):
        text = path.read_text("utf-8")
        if VIEW.search(text):
            for name in SPECS:
                if f'"name": "{name}"' in text:
                    out[name] = path.relative_to(SITE).as_posix()
    return out


PAGES = found()


@pytest.fixture
def open_figure(visit):
    def go(name: str, text: str | None = None, **how):
        query = "" if text is None else f"?{name}={quote(text)}"
        page, log = visit(PAGES[name] + query, formulas=False, **how)
        page.wait_for_function("document.documentElement.dataset.live === 'ready'")
        root = page.locator(f'section.live[aria-label="{SPECS[name]["title"]}"]')
        root.scroll_into_view_if_needed()
        settled(page, root)
        return page, log, root

    return go


def settled(page, root):
    root.page.wait_for_function("(e) => e.dataset.mode === 'idle'", arg=root.element_handle())


def clean(log):
    # a changed address makes the browser ask for the icon again, and leaving the page ends that
    failed = [url for url in log.failed if not url.endswith("favicon.svg")]
    assert log.errors == [] and log.offsite == [] and failed == []


def sane(root):
    """No NaN in what is drawn or said."""
    html = root.evaluate("(e) => e.outerHTML")
    assert not re.search(r"NaN|undefined\b|Infinity", html), re.search(
        r".{80}(NaN|undefined|Infinity).{40}", html
    )


def test_every_figure_stands_on_a_page():
    assert set(PAGES) == set(SPECS)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_figure_starts_reads_well_and_fits(open_figure, name, width, scheme):
    page, log, root = open_figure(name, width=width, scheme=scheme)
    sane(root)
    assert len(root.locator(".live-summary").inner_text()) > 40
    assert not root.locator(".live-note").inner_text()
    assert page.locator("figure:has(.live) img:visible").count() == 0
    assert too_wide(page) == []
    if scheme == "light":  # pages are tested in both; here with the figure drawn
        assert violations(page) == []
    clean(log)


@pytest.mark.parametrize("name", PAGES)
def test_without_scripts_the_picture_stays(browser, base, name):
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(base + PAGES[name])
        assert page.locator("figure:has(.live-mount) img").count() >= 1
        image = page.locator("figure:has(.live-mount) img").first
        assert image.is_visible() and len(image.get_attribute("alt")) > 60
    finally:
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_states_drawn_at_random_do_no_harm(open_figure, name):
    source = (live.FOLDER / "state.mjs").read_text("utf-8")
    page, log, root = open_figure(name)
    texts = [page.evaluate(PRELUDE, [source, SPECS[name], seed]) for seed in range(20)]
    assert len(set(texts)) == 20
    for text in texts:
        root.evaluate("(e, text) => e.dispatchEvent(new CustomEvent('live-open', {detail: text}))", text)
        page.wait_for_timeout(120)  # a long run is broken off by the next state
        sane(root)
        assert root.locator(".live-note").inner_text() == "", text
    settled(page, root)
    sane(root)
    page.wait_for_timeout(400)
    assert name in page.url  # the last of them stands in the address
    clean(log)


@pytest.mark.parametrize("name", PAGES)
def test_a_link_gives_back_what_it_was_made_from(open_figure, name):
    page, log, root = open_figure(name)
    presets = list(SPECS[name]["presets"])
    if len(presets) > 1:
        root.locator(".live-controls select").first.select_option(presets[1])
    field = next(f for f in SPECS[name]["fields"] if f.get("label") and f["kind"] in ("number", "integer"))
    number = root.get_by_role("spinbutton", name=field["label"], exact=True)
    number.fill(str(field["max"]))
    number.press("Enter")
    settled(page, root)
    page.wait_for_function(f"location.search.includes({json.dumps(field['name'])})")
    said, url = root.locator(".live-summary").inner_text(), page.url
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_function("document.documentElement.dataset.live === 'ready'")
    root.scroll_into_view_if_needed()
    settled(page, root)
    assert root.locator(".live-summary").inner_text() == said
    root.get_by_role("button", name="Reset").click()
    page.wait_for_function(f"!location.search.includes({json.dumps(name)})")
    clean(log)


@pytest.mark.parametrize("name", PAGES)
def test_broken_links_are_mended_and_said(open_figure, name):
    spec = SPECS[name]
    field = next(f for f in spec["fields"] if f.get("label") and f["kind"] in ("number", "integer"))
    _, log, root = open_figure(name, f"{spec['version']};{field['name']}:1e999;nonsense:3;X:[[")
    sane(root)
    assert field["label"] in root.locator(".live-note").inner_text()
    _, log, root = open_figure(name, f"99;{field['name']}:1")
    assert "another version" in root.locator(".live-note").inner_text()
    clean(log)


@pytest.mark.parametrize("name", PAGES)
def test_with_reduced_motion_no_frame_is_shown_between(open_figure, name):
    page, log, root = open_figure(name)
    page.emulate_media(reduced_motion="reduce")
    run = root.get_by_role("button", name="Run", exact=True)
    if not run.count():
        return
    last = root.get_attribute("data-step")
    page.evaluate(
        """(e) => { window.steps = []; new MutationObserver(() => window.steps.push(e.dataset.step))
             .observe(e, {attributes: true, attributeFilter: ["data-step"]}); }""",
        root.element_handle(),
    )
    run.click()
    page.wait_for_function("window.steps.length > 0")
    assert set(page.evaluate("window.steps")) == {last}
    clean(log)


@pytest.mark.parametrize("name", PAGES)
def test_code_for_python_runs_and_a_run_can_be_paused(open_figure, name):
    page, log, root = open_figure(name)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    root.get_by_role("button", name="Copy as Python").click()
    page.wait_for_function("document.querySelector('.live-note').textContent !== ''")
    code = page.evaluate("navigator.clipboard.readText()")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "copied", "exec"), {})
    if name in ("token-plane", "regularisation-path"):  # the page says the same numbers
        said = [
            float(x)
            for x in re.findall(r"correlation .*?(0\.\d{5})", root.locator(".live-summary").inner_text())
        ]
        ours = [float(x) for x in re.findall(r"(0\.\d{6,})\n", printed.getvalue())]
        assert ours == pytest.approx(said, abs=1e-4) and len(ours) == 2
    run = root.get_by_role("button", name="Run", exact=True)
    if run.count():
        root.get_by_label("Speed", exact=True).select_option("1")
        run.click()
        root.get_by_role("button", name="Pause").click()
        assert root.get_attribute("data-mode") == "idle"
    clean(log)


def test_tokens_move_by_mouse_and_by_keys(open_figure):
    page, log, root = open_figure("token-plane")
    said = root.locator(".live-summary").inner_text()
    token = root.get_by_role("button", name=re.compile("^Token 1 of sequence 1"))
    token.focus()
    before = token.get_attribute("aria-label")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    settled(page, root)
    assert token.get_attribute("aria-label") != before
    box = token.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 25, y + 60, steps=6)
    page.mouse.up()
    settled(page, root)
    assert root.locator(".live-summary").inner_text() != said
    count = root.get_by_role("button", name=re.compile("^Token ")).count()
    token = root.get_by_role("button", name=re.compile("^Token 2 of sequence 1"))
    token.focus()
    page.keyboard.press("Delete")
    settled(page, root)
    assert root.get_by_role("button", name=re.compile("^Token ")).count() == count - 1
    root.get_by_text("All numbers").click()
    root.get_by_role("button", name="Add a token to sequence 1").click()
    assert root.get_by_role("button", name=re.compile("^Token ")).count() == count
    sane(root)
    clean(log)


def test_a_run_pauses_off_screen_and_goes_on(open_figure):
    page, log, root = open_figure("token-plane", "1;steps:20000")
    root.get_by_label("Speed", exact=True).select_option("1")
    root.get_by_role("button", name="Run", exact=True).click()
    page.evaluate("document.querySelector('article').scrollIntoView()")
    page.wait_for_timeout(300)
    seen = [root.get_attribute("data-step")]
    page.wait_for_timeout(300)
    seen.append(root.get_attribute("data-step"))
    assert seen[0] == seen[1] and root.get_attribute("data-mode") == "play"
    root.scroll_into_view_if_needed()
    page.wait_for_function("([e, k]) => e.dataset.step !== k", arg=[root.element_handle(), seen[1]])
    clean(log)


def test_a_finger_moves_a_token(browser, base):
    context = browser.new_context(has_touch=True, viewport={"width": 400, "height": 900})
    try:
        page = context.new_page()
        page.goto(base + PAGES["token-plane"])
        page.wait_for_function("document.documentElement.dataset.live === 'ready'")
        token = page.get_by_role("button", name=re.compile("^Token 1 of sequence 1"))
        token.scroll_into_view_if_needed()
        before, box = token.get_attribute("aria-label"), token.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = context.new_cdp_session(page)
        for kind, dx in (("touchStart", 0), ("touchMove", 15), ("touchMove", 30), ("touchEnd", None)):
            points = [] if dx is None else [{"x": x + dx, "y": y}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_timeout(300)
        assert token.get_attribute("aria-label") != before
    finally:
        context.close()


def test_the_phase_diagram_opens_an_instance_in_the_token_plane(open_figure):
    page, _, root = open_figure("phase-diagram")
    link = root.get_by_role("link", name=re.compile("local"))
    link.click()
    page.wait_for_function("document.documentElement.dataset.live === 'ready'")
    plane = page.locator('section.live[aria-label="Token plane"]')
    plane.scroll_into_view_if_needed()
    settled(page, plane)
    assert "not all optimal" in plane.locator(".live-summary").inner_text()
    assert plane.locator(".live-note").inner_text() == ""


def test_sixty_frames_a_second_at_ten_thousand_steps(open_figure):
    """At the quickest pace; a busy machine may be slower, ten times slower is a fault."""
    page, _, root = open_figure("token-plane", "1;steps:20000")
    root.get_by_label("Speed", exact=True).select_option("1000")
    root.get_by_role("button", name="Run", exact=True).click()
    frames, steps = page.evaluate(
        """(e) => new Promise((done) => {
          let frames = 0, from = Number(e.dataset.step), start = performance.now();
          const tick = () => {
            frames++;
            if (performance.now() - start < 1500) requestAnimationFrame(tick);
            else done([frames / 1.5, (Number(e.dataset.step) - from) / 1.5]);
          };
          requestAnimationFrame(tick);
        })""",
        root.element_handle(),
    )
    print(f"{frames:.0f} frames and {steps:.0f} steps a second")
    assert frames > 6 and steps > 1000
