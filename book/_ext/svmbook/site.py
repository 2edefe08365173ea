"""Pages that need nothing from another host, with addresses made from one place."""

from __future__ import annotations

import html
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

from .execution import ROOT, scale

MATHJAX = (
    "tex-chtml.js",
    "output/chtml/fonts/woff-v2",
    "input/tex/extensions",
    "a11y",
    "sre/mathmaps/en.json",
    "sre/mathmaps/base.json",
)
SUMMARY = re.compile(r'<summary class="sd-summary-title.*?</summary>', re.DOTALL)


def addresses(app: Sphinx, config: Config) -> None:
    """Make the site's own address (GitHub Pages) from the repository's."""
    owner, name = config.html_theme_options["repository_url"].rstrip("/").rsplit("/", 2)[1:]
    config.html_baseurl = config.ogp_site_url = f"https://{owner}.github.io/{name}/"
    config.notfound_urls_prefix = f"/{name}/"


def banner(app: Sphinx, config: Config) -> None:
    if scale() == "test":
        config.html_theme_options["announcement"] = (
            "Test build: experiments on this page ran with fewer trials than in the book (SVMLIB_SCALE=test)."
        )


def drop_thebe(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    # sphinx-thebe adds its variables twice ("Identifier 'THEBE_JS_URL' has
    # already been declared") and names another host, on pages that never use it.
    files = context.get("script_files")
    if files:
        files[:] = [
            f
            for f in files
            if "THEBE_JS_URL" not in str(getattr(f, "attributes", {}).get("body", ""))
            and "sphinx-thebe.js" not in str(getattr(f, "filename", "") or "")
        ]


def colab(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    # Colab opens .ipynb only and the sources are .md: point the button at the
    # notebook that the published site carries.
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("text") == "Colab" and button["url"].endswith(".md"):
                head, _, tail = button["url"].partition("/blob/")
                path = tail.split("/", 1)[1]
                button["url"] = f"{head}/blob/{app.config.svmbook_notebook_branch}/_sources/{path[:-3]}.ipynb"


def bibtex(app: Sphinx, pagename: str) -> str:
    """The BibTeX entry of one page, from CITATION.cff."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    names = [a.get("name") or f"{a['family-names']}, {a['given-names']}" for a in cff["authors"]]
    who = " and ".join(f"{{{n}}}" if "," not in n else n for n in names)
    title = app.env.titles[pagename].astext()
    fields = {
        "author": who,
        "title": title,
        "booktitle": cff["title"],
        "year": str(cff["date-released"])[:4],
        "note": f"Version {cff['version']}",
        "url": f"{app.config.html_baseurl}{pagename}.html",
    }
    if pagename == app.config.root_doc:
        fields["title"] = fields.pop("booktitle")
    kind = "misc" if pagename == app.config.root_doc else "incollection"
    key = "transformers-as-svm" + ("" if kind == "misc" else "-" + Path(pagename).name.replace("_", "-"))
    body = ",\n".join(f"  {k} = {{{v}}}" for k, v in fields.items())
    return f"@{kind}{{{key},\n{body}\n}}"


def cite_box(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if doctree is None or pagename not in app.env.titles or "body" not in context:
        return
    context["body"] += (
        '<details class="cite-page"><summary>Cite this page</summary>'
        f'<div class="highlight"><pre tabindex="0">{html.escape(bibtex(app, pagename))}</pre></div></details>'
    )


def tidy(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    body = context.get("body")
    if not body:
        return
    # Figures below the fold are fetched when the reader comes near them.
    body = re.sub(r"<img (?![^>]*\bloading=)", '<img loading="lazy" ', body)
    # sphinx-proof and sphinx-exercise give all their boxes on a page the same ids.
    body = re.sub(r' id="(proof|exercise|solution)-content"', "", body)
    body = re.sub(
        r'(<div class="proof [^"]*" id="([^"]+)">\s*<p class="admonition-title") id="\2"', r"\1", body
    )
    body = body.replace(
        '<div class="proof admonition" id="proof">', '<div class="proof proof-text admonition">'
    )
    # A link inside a folding box's title would be one control inside another.
    body = SUMMARY.sub(lambda m: re.sub(r"</?a\b[^>]*>", "", m[0]), body)
    # docutils gives the bibliography list roles that do not fit together.
    body = body.replace('<div role="list" class="citation-list">', '<div class="citation-list">')
    context["body"] = body.replace(' role="doc-biblioentry"', "")


def assets(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax into the site, and take out what no page loads."""
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    home = next(f for f in metadata.files("sphinx-mathjax-offline") or [] if f.name == "tex-chtml.js")
    source = Path(str(home.locate())).parent
    for name in MATHJAX:
        target = static / "mathjax" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, target)
    for unused in [*static.rglob("*.map"), static / "scripts" / "fontawesome.js", static / "sphinx-thebe.js"]:
        unused.unlink(missing_ok=True)
