"""Every claim of the ledger, at test scale; and every numbered statement of the chapters has its claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import svmlib as sv
from svmlib.checks.registry import CHAPTERS

BOOK = Path(__file__).parents[2] / "book"
STATEMENT = re.compile(r"\{prf:(theorem|lemma|proposition|corollary)\}[^\n]*\n(?:[^\n`]*\n)*?:label: *(\S+)")

CLAIMS = sv.checks.claims()


@pytest.mark.parametrize("entry", CLAIMS, ids=lambda c: c.label)
def test_claim_holds(entry, monkeypatch):
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    result = sv.checks.run(entry.label)
    assert result.passed
    assert bool(result.rows) != bool(entry.why)


def statements():
    return {
        label: (kind, page.relative_to(BOOK).with_suffix("").as_posix())
        for page in BOOK.rglob("*.md")
        for kind, label in STATEMENT.findall(page.read_text(encoding="utf-8"))
    }


def test_claims_name_the_statement_its_kind_and_its_page():
    found = statements()
    assert found, "no statements found: the pattern no longer fits the chapters"
    assert {c.label: (c.kind, c.chapter) for c in CLAIMS} == found


def test_chapters_stand_in_the_order_of_the_book():
    toc = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))
    pages = [chapter["file"].removeprefix("book/") for part in toc["parts"] for chapter in part["chapters"]]
    assert [page for page in pages if page in {c.chapter for c in CLAIMS}] == list(CHAPTERS)
