"""What can be said of the built site from its files alone."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from chapters import ROOT, SITE, pages, source

REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
NOTEBOOKS = [page for page in pages() if "{code-cell}" in source(page)]


@functools.cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(t["id"] for t in soup(path).find_all(id=True)) | {"", "top"}


def every_page() -> list[str]:
    return sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if "_static" not in p.parts)


def broken_links(path: Path, prefix: str) -> list[str]:
    """Links of one page to a file or an anchor of this site that is not there."""
    found = []
    for tag, key in (("a", "href"), ("link", "href"), ("img", "src"), ("script", "src"), ("source", "src")):
        for node in soup(path).find_all(tag, attrs={key: True}):
            url = urlsplit(node[key])
            if url.scheme or url.netloc or node[key].startswith("data:"):
                continue
            name = unquote(url.path)
            if name.startswith(prefix):
                target = SITE / name.removeprefix(prefix)
            else:
                target = (path.parent / name).resolve() if name else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(f"{node[key]}: no such file")
            elif target.suffix == ".html" and unquote(url.fragment) not in anchors(target):
                found.append(f"{node[key]}: no such anchor")
    return sorted(set(found))


def offsite_resources(path: Path) -> list[str]:
    """What a page would load from another host (links that a reader clicks are no such thing)."""
    found = []
    for node in soup(path).find_all(
        ["script", "img", "iframe", "source", "video", "audio", "object", "embed"]
    ):
        found += [node[k] for k in ("src", "data", "srcset") if re.match(r"(https?:)?//", node.get(k, ""))]
    for node in soup(path).find_all("link", href=True):
        passive = {"canonical", "index", "search", "next", "prev", "author", "license"} & set(
            node.get("rel", [])
        )
        if not passive and re.match(r"(https?:)?//", node["href"]):
            found.append(node["href"])
    return found


@pytest.mark.parametrize("name", every_page())
def test_links_lead_somewhere(name):
    prefix = "/" + REPOSITORY.rstrip("/").rsplit("/", 1)[1] + "/"
    assert broken_links(SITE / name, prefix) == []


@pytest.mark.parametrize("name", every_page())
def test_nothing_from_another_host(name):
    assert offsite_resources(SITE / name) == []


def test_style_sheets_load_nothing_from_another_host():
    sheets = list(SITE.rglob("*.css"))
    assert sheets
    loads = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//[^)\s]*")
    assert {p.name: m for p in sheets if (m := loads.findall(p.read_text("utf-8")))} == {}


def test_the_link_checks_can_fail(tmp_path):
    page = tmp_path / "a.html"
    page.write_text(
        '<p id="here"></p><a href="a.html#here">x</a><a href="#there">x</a><img src="gone.png">'
        '<script src="https://elsewhere.example/x.js"></script><a href="https://elsewhere.example">x</a>'
    )
    assert broken_links(page, "/book/") == ["#there: no such anchor", "gone.png: no such file"]
    assert offsite_resources(page) == ["https://elsewhere.example/x.js"]


@pytest.mark.parametrize("page", pages())
def test_images_have_a_text_alternative(page):
    for image in soup(SITE / f"{page}.html").select("article img"):
        alt = image.get("alt", "")
        assert len(alt) > 15 and not alt.endswith((".png", ".svg")), f"{image.get('src')}: alt={alt!r}"


@pytest.mark.parametrize("page", pages())
def test_previous_and_next_follow_the_contents(page):
    order = pages()
    at = order.index(page)
    for side, neighbour in (("left-prev", at - 1), ("right-next", at + 1)):
        link = soup(SITE / f"{page}.html").select_one(f"a.{side}")
        if not 0 <= neighbour < len(order):
            assert link is None
            continue
        target = (SITE / f"{page}.html").parent / link["href"]
        assert target.resolve() == (SITE / f"{order[neighbour]}.html").resolve()


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_launch_and_download_buttons(page):
    html = soup(SITE / f"{page}.html")
    links = {
        a.get_text(strip=True): a["href"] for a in html.select(".article-header-buttons a.dropdown-item")
    }
    repository = REPOSITORY.removeprefix("https://github.com/")
    assert links["Colab"] == (
        f"https://colab.research.google.com/github/{repository}/blob/gh-pages/_sources/{page}.ipynb"
    )
    assert links["Binder"] == f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{page}.md"
    assert ((SITE / f"{page}.html").parent / links[".ipynb"]).resolve() == (
        SITE / f"_sources/{page}.ipynb"
    ).resolve()


@pytest.mark.parametrize("page", pages())
def test_every_page_says_how_to_cite_it(page):
    [box] = soup(SITE / f"{page}.html").select("details.cite-page pre")
    entry = box.get_text()
    assert entry.startswith("@") and f"{page}.html}}" in entry
    assert "Transformers as Support Vector Machines" in entry


def test_no_ids_are_used_twice():
    for page in pages():
        ids = [t["id"] for t in soup(SITE / f"{page}.html").select("article [id]")]
        assert sorted({i for i in ids if ids.count(i) > 1}) == [], page
