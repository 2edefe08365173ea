"""`make lab` as its user sees it: chapters open as notebooks, and the panel answers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from chapters import ROOT, pages
from playwright.sync_api import TimeoutError
from watching import watch

CHAPTER = "book/implicit_bias/descent.md"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab on a copy of the chapters, started as `make lab` starts it."""
    home = tmp_path_factory.mktemp("lab")
    for page in pages():
        (home / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / f"{page}.md", home / f"{page}.md")
    shutil.copy(Path(__file__).with_name("panel.md"), home)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "lab", f"--config={ROOT}/tools/lab/jupyter_server_config.py"]
    command += [
        f"--ServerApp.root_dir={home}",
        f"--port={port}",
        "--no-browser",
        "--IdentityProvider.token=t",
    ]
    command += ["--allow-root", "--ServerApp.port_retries=0", "--LabApp.expose_app_in_browser=True"]
    env = {k: v for k, v in os.environ.items() if k not in ("SVMLIB_BOOK", "PYTHONPATH")}
    env |= {"JUPYTER_CONFIG_DIR": str(home / ".config"), "JUPYTERLAB_WORKSPACES_DIR": str(home / ".spaces")}
    log = (home / "server.log").open("w")
    process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{url}api?token=t", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None, (home / "server.log").read_text()[-3000:]
                time.sleep(0.5)
        yield url, home
    finally:
        process.terminate()
        process.wait(20)
        log.close()


@pytest.fixture
def tab(browser, lab):
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()


def open_notebook(tab, lab, name: str):
    url, _ = lab
    log = watch(tab, url)
    tab.goto(f"{url}lab/tree/{name}?token=t&reset")
    tab.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    return log


FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"


def test_every_chapter_opens_as_a_notebook(tab, lab):
    """JupyterLab starts once and opens them one after the other, each as a double click on its file would."""
    first, *others = [f"{page}.md" for page in (pages()[0], *pages(numbered=True))]
    log = open_notebook(tab, lab, first)
    wrong = {}
    for name in (first, *others):
        if name != first:
            tab.evaluate(
                "async (path) => { await jupyterapp.commands.execute('docmanager:open', {path}); }", name
            )
        title = (lab[1] / name).read_text("utf-8").split("\n# ", 1)[1].split("\n", 1)[0]
        tab.wait_for_selector(f"{FRONT} .jp-RenderedMarkdown h1")
        problems = tab.locator("mjx-merror").all_text_contents() + log.offsite
        if tab.locator(".jp-FileEditor").count():
            problems.append("opens as text")
        if "$" not in title and not tab.locator(f"{FRONT} h1").first.inner_text().startswith(title):
            problems.append("shows another page")
        if problems:
            wrong[name] = problems
        tab.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown(); }")
        tab.evaluate("() => { jupyterapp.shell.currentWidget.dispose(); }")
        tab.wait_for_selector(FRONT, state="detached")
    assert wrong == {}


def test_the_panel_answers(tab, lab):
    log = open_notebook(tab, lab, "panel.md")
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    formulas = tab.locator(".jp-RenderedMarkdown mjx-container")
    formulas.nth(2).wait_for()
    assert tab.locator("mjx-merror, mjx-mtext[style*=red]").count() == 0, "the book's macros are not defined"

    live = tab.locator(".jp-OutputArea .live").first
    for attempt in range(4):  # a click that comes before the kernel is connected runs nothing
        tab.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        tab.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
        try:
            live.wait_for(timeout=45_000)
            break
        except TimeoutError:
            if attempt == 3:
                raise
    # what the last cell set from Python has reached the figure
    last = tab.locator(".jp-CodeCell").nth(2)
    last.get_by_text("iterations: 2000").wait_for()
    instance = live.get_by_label("Instance")
    tab.wait_for_function("(e) => e.value === 'planar-2'", arg=instance.element_handle())
    assert live.get_by_label("Step size").first.input_value() == "0.5"
    # and what the reader sets reaches Python
    iterations = live.get_by_role("spinbutton", name="Iterations")
    iterations.fill("300")
    iterations.press("Enter")
    live.get_by_text("After 300 of 300 steps").first.wait_for()
    tab.wait_for_timeout(500)  # the figure publishes a moment after the last change
    last.click()
    tab.keyboard.press("Control+Enter")
    last.get_by_text("iterations: 300").wait_for()
    assert live.get_by_role("button", name="Copy link").count() == 0, "the address is JupyterLab's"

    # the second panel, by keyboard alone: numbers are typed, and Enter asks for the picture
    tab.locator(".jp-CodeCell").nth(1).scroll_into_view_if_needed()
    rate, words = tab.get_by_label("Attention rate"), tab.get_by_label("Class 1: a, b, own words")
    scanning = tab.locator(".jp-CodeCell").nth(1).locator(".jupyter-widgets img").first
    scanning.wait_for()
    before = scanning.get_attribute("src")
    rate.fill("5")
    rate.press("Enter")
    tab.wait_for_function(  # another element takes the place of the picture
        "(old) => document.querySelectorAll('.jp-CodeCell')[1].querySelector('img').src !== old", arg=before
    )
    words.fill("1, 2")
    words.press("Enter")
    tab.locator(".jp-CodeCell").nth(1).get_by_text("Not computed.").wait_for()
    assert log.offsite == []


def test_saving_leaves_the_macros_out(tab, lab):
    _, home = lab
    text = (home / CHAPTER).read_text("utf-8")
    open_notebook(tab, lab, CHAPTER)
    tab.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    tab.locator(".jp-Notebook .jp-Cell").nth(1).click()
    tab.keyboard.press("Escape")
    tab.keyboard.press("b")  # a new cell makes the notebook differ from its file
    tab.keyboard.press("Control+s")
    for _ in range(60):
        saved = (home / CHAPTER).read_text("utf-8")
        if saved != text:
            break
        time.sleep(0.25)
    assert saved != text
    assert "newcommand" not in saved and "svmbook-macros" not in saved
