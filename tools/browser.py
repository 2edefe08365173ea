"""Find a Chromium for the browser tests, or install one; prints its path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HELP = """\
The browser tests need Chromium or Chrome, and none was found. Install one, for example
    Debian, Ubuntu:   sudo apt-get install chromium
    anywhere:         .venv/bin/python -m playwright install chromium
or name the one you have: make test CHROMIUM=/path/to/chrome"""


def playwrights_own() -> str | None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        path = p.chromium.executable_path
    return path if Path(path).exists() else None


def find() -> str | None:
    """The browser that CHROMIUM names, one on the path, or playwright's own."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    mac = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
    return found or (str(mac) if mac.exists() else None) or playwrights_own()


def install() -> None:
    """Try playwright's download, then the system's packages where we may install them."""
    attempts = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        attempts += [["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]]
    for command in attempts:
        print("no Chromium yet, trying:", " ".join(command), file=sys.stderr, flush=True)
        try:
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=600)
        except subprocess.TimeoutExpired:
            print("  gave up after 10 minutes", file=sys.stderr)
        if find():
            return


if __name__ == "__main__":
    if not find() and not os.environ.get("CHROMIUM"):
        install()
    path = find()
    if not path:
        raise SystemExit(HELP)
    print("browser:", path)
