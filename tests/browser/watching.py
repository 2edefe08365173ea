"""What went wrong on a page while a test looked at it."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Page


@dataclass
class Log:
    """What went wrong on a page, and what it fetched."""

    errors: list[str] = field(default_factory=list)
    offsite: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    responses: list = field(default_factory=list)


def watch(page: Page, home: str) -> Log:
    log = Log()
    local = (home, "data:", "blob:", "about:")
    page.on("console", lambda m: log.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: log.errors.append(str(e)))
    page.on("request", lambda r: None if r.url.startswith(local) else log.offsite.append(r.url))
    # a script that asks for a file gets it from a server, and nothing from a disk
    page.on("request", lambda r: log.asked.append(r.url) if r.resource_type in ("fetch", "xhr") else None)
    page.on("requestfailed", lambda r: log.failed.append(r.url))
    page.on("response", lambda r: log.responses.append(r))
    return log
