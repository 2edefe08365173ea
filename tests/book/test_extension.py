"""The local Sphinx extension and the build driver, piece by piece."""

from __future__ import annotations

import build as driver
import pytest
from svmbook import execution, ledger, plain
from svmbook.notebooks import leftovers, macros


def statement(kind, page="book/a"):
    return {"realtype": kind, "docname": page}


def test_ledger_names_missing_rows_and_missing_statements():
    book = {"thm-a": statement("theorem"), "lem-b": statement("lemma"), "def-c": statement("definition")}
    assert ledger.compare(book, {"thm-a", "lem-b"}) == []
    [(page, message)] = ledger.compare(book, {"thm-a"})
    assert page == "book/a" and "lemma 'lem-b' has no row" in message
    [(page, message)] = ledger.compare(book, {"thm-a", "lem-b", "cor-z"})
    assert page is None and "'cor-z' names no statement" in message


def test_ledger_sees_statements_without_label():
    [(_, message)] = ledger.compare({"theorem-3": statement("theorem")}, set())
    assert "no :label:" in message
    assert (
        ledger.compare({"remark-3": statement("remark"), "algorithm-1": statement("algorithm")}, set()) == []
    )


def test_digest_knows_library_scale_and_pins(monkeypatch, tmp_path):
    for name in ("svmlib/a.py", "requirements.txt", "book/data/x.csv", "svmlib/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(execution, "ROOT", tmp_path)
    monkeypatch.delenv("SVMLIB_SCALE", raising=False)
    seen = [execution.digest()]
    (tmp_path / "svmlib/__pycache__/a.pyc").write_text("2")
    assert execution.digest() == seen[0]
    for name in ("svmlib/a.py", "requirements.txt", "book/data/x.csv"):
        (tmp_path / name).write_text("2")
        seen.append(execution.digest())
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    seen.append(execution.digest())
    assert len(set(seen)) == len(seen)


class Known(plain.Names):
    def statement(self, label):
        return {"thm-a": ("Theorem 1.2", "u#thm-a"), "ex-a": ("Exercise 1.1", "")}.get(label, ("", ""))

    def reference(self, label):
        return self.statement(label) if self.statement(label)[0] else (label, "")

    numbered = document = reference

    def equation(self, label):
        return "(1.3)", "u#eq"


@pytest.mark.parametrize(
    ("myst", "shown"),
    [
        ("(ch-a)=\n# Title", "# Title"),
        ("See {prf:ref}`thm-a`, {eq}`eq-a`.", "See [Theorem 1.2](u#thm-a), [(1.3)](u#eq)."),
        ("{cite:t}`a2020,b2021` and {term}`scores <score>`", "[a2020, b2021] and scores"),
        (":::{prf:theorem} Name $x$\n:label: thm-a\nText.\n:::", "> **Theorem 1.2 (Name $x$).**\n>\n> Text."),
        (":::{prf:proof}\nEasy.\n:::", "*Proof.* Easy. $\\square$"),
        ("::::{dropdown} Proof\n:icon: pencil\nA\n\n:::{note}\nB\n:::\n::::",
         "<details><summary>Proof</summary>\n\nA\n\n> **Note**\n>\n> B\n\n</details>"),
        ("```{math}\n:label: eq-a\na = b\n```", "$$\na = b \\tag{1.3}\n$$"),
        ("$$\na = b\n$$ (eq-a)", "$$\na = b\n \\tag{1.3}$$"),
        ("```{exercise-start} Do\n:label: ex-a\n```\nNow.\n```{exercise-end}\n```",
         "**Exercise 1.1 (Do).**\nNow.\n"),
        ("```python\n{ref}`not a role`\n:::{note}\n```", "```python\n{ref}`not a role`\n:::{note}\n```"),
    ],
)  # fmt: skip
def test_plain_markdown(myst, shown):
    assert plain.markdown(myst, Known()) == shown


def test_leftovers_are_seen():
    assert len(leftovers(":::{note}\nx\n:::\n(ch-a)=\n{ref}`a`")) == 4
    assert leftovers("Plain $x$ text with `code`.") == []


def test_macros_take_arguments():
    config = {"tex": {"macros": {"R": r"\mathbb{R}", "ip": [r"\langle #1,#2\rangle", 2]}}}
    assert macros(config) == r"$\newcommand{\R}{\mathbb{R}} \newcommand{\ip}[2]{\langle #1,#2\rangle}$"


def test_a_site_is_swapped_whole(tmp_path):
    work, site = tmp_path / "work", tmp_path / "html"
    for folder, text in ((work, "new"), (site, "old")):
        folder.mkdir()
        (folder / "index.html").write_text(text)
    (site / "stale.html").write_text("gone after the swap")
    driver.publish(work, site)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["html", "work"]
    assert [p.name for p in site.iterdir()] == ["index.html"] and (site / "index.html").read_text() == "new"


def test_a_swap_cut_in_the_middle_is_undone(tmp_path):
    (tmp_path / "html.old").mkdir()
    driver.recover(tmp_path / "html")
    assert [p.name for p in tmp_path.iterdir()] == ["html"]


def test_a_failing_cell_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(driver, "ROOT", tmp_path)
    (tmp_path / "book").mkdir()
    cells = ["a = 1", "b = a\nb / 0"]
    text = "# T\n\n" + "\n\n".join(f"```{{code-cell}} python\n{c}\n```" for c in cells)
    (tmp_path / "book/x.md").write_text(text)
    ruler = "-" * 18
    log = f"The following cell:\n{ruler}\nb = a\nb / 0\n{ruler}\n\nZeroDivisionError: division by zero\n"
    said = driver.failed_cell("book/x", log)
    assert said.startswith("book/x.md, code cell 2 of 2, failed:")
    assert "| b / 0" in said and said.endswith("ZeroDivisionError: division by zero")
