"""The chapters keep the book's rules, and each rule can be broken."""

from __future__ import annotations

import pytest
import rules
from chapters import ROOT, SITE, directives, pages, source

EVERY_PAGE = (
    rules.belittling_words,
    rules.long_functions,
    rules.global_state,
    rules.figures_without_text,
    rules.unlabelled_statements,
    rules.exercises_without_solution,
    rules.typed_numbers,
)


@pytest.mark.parametrize("rule", EVERY_PAGE, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("page", pages())
def test_page(page, rule):
    assert rule(source(page)) == []


@pytest.mark.parametrize("page", pages(numbered=True))
def test_chapter_pattern(page):
    text = source(page)
    assert rules.exercises_without_solution(text, at_least=4) == []
    kinds = [d.name for d in directives(text)]
    assert any(kind.startswith("prf:") for kind in kinds), "a chapter makes at least one numbered statement"
    assert text.count("sv.checks.run(") >= 1, "a chapter runs the checks of its statements"
    for heading in ("## Take-aways", "## Exercises", "## Further reading"):
        assert f"\n{heading}\n" in text


BROKEN = {
    rules.belittling_words: "This is Just\nclearly $x$ so.",
    rules.long_functions: "```{code-cell} python\ndef f(x):\n" + "    x += 1\n" * 4 + "    return x\n```",
    rules.global_state: "```{code-cell} python\nplt.rcParams['a'] = 1\ntorch.manual_seed(0)\n```",
    rules.figures_without_text: "```{code-cell} python\n---\nmystnb:\n  figure:\n    name: f\n---\n1\n```",
    rules.unlabelled_statements: "::::{dropdown} x\n:::{prf:lemma} A\nText.\n:::\n::::",
    rules.exercises_without_solution: ":::{exercise} A\n:label: ex-a\nText.\n:::",
    rules.typed_numbers: "See Theorem 1.2 there.",
}


@pytest.mark.parametrize("rule", EVERY_PAGE, ids=lambda rule: rule.__name__)
def test_each_rule_can_be_broken(rule):
    assert rule(BROKEN[rule]), "the rule does not see the text that breaks it"
    assert rule("A calm sentence with `just` in code and $just$ in mathematics.") == []


def test_too_few_exercises_are_seen():
    assert rules.exercises_without_solution("", at_least=1) == ["0 exercises, at least 1 are wanted"]


def test_every_page_file_is_in_the_contents():
    files = {p.relative_to(ROOT).with_suffix("").as_posix() for p in (ROOT / "book").rglob("*.md")}
    assert files == set(pages())


def test_reduced_builds_say_so_on_every_page():
    for page in pages():
        html = (SITE / f"{page}.html").read_text("utf-8")
        assert "Test build: experiments on this page ran with fewer trials" in html, page
