"""A served copy of the built site and a Chromium to look at it with."""

from __future__ import annotations

import functools
import http.server
import threading

import browser as finder
import pytest
from chapters import SITE
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from watching import Log, watch

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """The site's address: under a folder's name, as on GitHub Pages."""
    assert (SITE / "index.html").exists(), f"no site at {SITE}: run make pages, which builds it first"
    root = tmp_path_factory.mktemp("www")
    (root / "book").symlink_to(SITE, target_is_directory=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/book/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    path = finder.find()
    if not path:
        pytest.fail(finder.HELP)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, base: str):
    """Open an address of the site; returns its page, typeset unless without `formulas`, and its log."""
    contexts: list[BrowserContext] = []

    def go(
        path: str,
        *,
        width: int = 1280,
        scheme: str = "light",
        home: str = base,
        typeset: bool = True,
        formulas: bool = True,
    ) -> tuple[Page, Log]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        if not formulas:  # MathJax takes most of the time in which a page is made
            context.route(
                "**/tex-chtml.js*", lambda route: route.fulfill(body="", content_type="text/javascript")
            )
        page = context.new_page()
        log = watch(page, home)
        page.goto(home + path, wait_until="load")
        if typeset:
            page.evaluate(
                "window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => null) : null"
            )
        return page, log

    yield go
    for context in contexts:
        context.close()
