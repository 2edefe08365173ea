"""Texts as streams of words: the tokeniser, where a corpus is found, and what is said when it is not."""

from __future__ import annotations

import hashlib
import os
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest

from svmlib.errors import DataError
from svmlib.text import EOS, Corpus, load_corpus, tokenize

PUBLISHED = " \n = Homarus gammarus = \n \n The <unk> lobster @-@ red café \n"
WORDS = ["=", "Homarus", "gammarus", "=", EOS, "The", "<unk>", "lobster", "@-@", "red", "café", EOS]
BELOW = os.environ.get("SVMLIB_CORPORA", "")
THREE_WAYS = r"three ways.*folder=F.*wiki\.train\.tokens.*SVMLIB_CORPORA.*pip install datasets.*python-topics"


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch):
    """No folder of the machine's own, no package that would download."""
    monkeypatch.delenv("SVMLIB_CORPORA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn't x_1 = 10.", ["it", "isn't", "x", "_", "1", "=", "10", "."]),
        ("'quoted' dogs' O'Neil", ["'", "quoted", "'", "dogs", "'", "o'neil"]),
        ("3.14abc\t\n\u00a0Füße", ["3", ".", "14", "abc", "füße"]),
        ("__init__(self) **** ::=", ["__", "init", "__", "(", "self", ")", "****", "::", "="]),
        (" \n\t", []),
        ("", []),
    ],
)
def test_tokenizer(text, words):
    assert tokenize(text) == words
    assert tokenize(" ".join(words)) == words


def test_published_files(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text(PUBLISHED, encoding="utf-8")
    (tmp_path / "test.txt").write_text("a b", encoding="utf-8-sig")
    corpus = load_corpus("wikitext-2", folder=tmp_path)
    assert corpus.splits == ("train", "test")
    assert list(corpus.words("train")) == WORDS == list(corpus.words("train"))
    assert list(corpus.words("test")) == ["a", "b", EOS]
    assert corpus.source == str(tmp_path)


def test_a_published_name_goes_before_a_plain_one(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text("one")
    (tmp_path / "train.txt").write_text("two")
    assert next(load_corpus("wikitext-103", folder=str(tmp_path)).words("train")) == "one"


def test_a_missing_split_is_named_with_those_present_before_a_word_is_read(tmp_path):
    (tmp_path / "valid.txt").write_text("a")
    (tmp_path / "test.txt").write_text("a")
    corpus = load_corpus("wikitext-2", folder=tmp_path)
    for ask in (corpus.words, corpus.checksum, corpus.stamp):
        with pytest.raises(DataError, match="no split 'train', only valid, test"):
            ask("train")


def test_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("SVMLIB_CORPORA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"SVMLIB_CORPORA is set, but .*wikitext-2 is no folder.*" + THREE_WAYS
    ):
        load_corpus("wikitext-2")
    (tmp_path / "wikitext-2").mkdir()
    with pytest.raises(DataError, match="none of the files of wikitext-2.*" + THREE_WAYS):
        load_corpus("wikitext-2")
    (tmp_path / "wikitext-2" / "valid.txt").write_text("from the variable")
    assert next(load_corpus("wikitext-2").words("valid")) == "from"
    other = tmp_path / "other"
    other.mkdir()
    (other / "valid.txt").write_text("argument first")
    assert next(load_corpus("wikitext-2", folder=other).words("valid")) == "argument"


def test_a_missing_corpus_names_three_ways(tmp_path):
    with pytest.raises(DataError, match=r"is not set.*datasets cannot be imported.*" + THREE_WAYS):
        load_corpus("wikitext-103")
    with pytest.raises(DataError, match="is no folder.*" + THREE_WAYS):
        load_corpus("wikitext-2", folder=tmp_path / "nowhere")


def test_unknown_names():
    with pytest.raises(
        DataError, match="no corpus 'wikitext2'; choose one of python-topics, wikitext-2, wikitext-103"
    ):
        load_corpus("wikitext2")
    with pytest.raises(DataError, match="needs no folder"):
        load_corpus(folder="here")


@pytest.mark.parametrize("content", ["", " \n \n\n"])
def test_an_empty_corpus(tmp_path, content):
    (tmp_path / "train.txt").write_text(content)
    corpus = load_corpus("wikitext-2", folder=tmp_path)
    with pytest.raises(DataError, match=r"'train' of wikitext-2 from .* is empty"):
        list(corpus.words("train"))
    with pytest.raises(DataError, match="is empty"):
        corpus.checksum("train")


def test_a_file_that_is_no_text_or_vanished(tmp_path):
    file = tmp_path / "train.txt"
    file.write_bytes(b"fine \xff\xfe")
    corpus = load_corpus("wikitext-2", folder=tmp_path)
    with pytest.raises(DataError, match=r"train\.txt cannot be read as text.*" + THREE_WAYS):
        list(corpus.words("train"))
    file.unlink()
    with pytest.raises(DataError, match=THREE_WAYS):
        list(corpus.words("train"))
    with pytest.raises(DataError, match=THREE_WAYS):
        corpus.stamp("train")


def test_hub(monkeypatch):
    asked = []

    def load_dataset(*args):
        asked.append(args)
        return {
            "train": [{"text": line + "\n"} for line in PUBLISHED.splitlines()],
            "validation": [{"text": "v"}],
        }

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    corpus = load_corpus("wikitext-103")
    assert asked == [("Salesforce/wikitext", "wikitext-103-v1")]
    assert corpus.splits == ("train", "valid")
    assert list(corpus.words("train")) == WORDS == list(corpus.words("train"))
    assert corpus.stamp("train") == corpus.checksum("train")


def test_hub_and_folder_have_the_same_checksum(tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text(PUBLISHED, encoding="utf-8")
    rows = {"train": [{"text": line} for line in PUBLISHED.splitlines()]}
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda *_: rows))
    local, hub = load_corpus("wikitext-2", folder=tmp_path), load_corpus("wikitext-2")
    assert local.checksum("train") == hub.checksum("train")


def test_hub_fails(monkeypatch):
    def load_dataset(*_):
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(DataError, match=r"ConnectionError: no route.*" + THREE_WAYS):
        load_corpus("wikitext-2")
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda *_: {"all": []}))
    with pytest.raises(DataError, match="without train, validation and test.*" + THREE_WAYS):
        load_corpus("wikitext-2")


def test_embedded_text():
    from pydoc_data.topics import topics

    corpus = load_corpus()
    assert corpus.splits == ("train", "valid", "test")
    words = {split: list(corpus.words(split)) for split in corpus.splits}
    assert sum(len(w) - w.count(EOS) for w in words.values()) == len(tokenize("\n\n".join(topics.values())))
    assert len(words["train"]) > 4 * len(words["test"])
    for split, found in words.items():
        assert found[-1] == EOS
        assert all(a != EOS or b != EOS for a, b in pairwise(found))
        assert found == list(corpus.words(split))
        assert not any(w != w.lower() for w in found)


def test_this_python_has_no_embedded_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(DataError, match="without pydoc_data"):
        load_corpus()


def test_checksum_and_stamp():
    def corpus(*lines):
        return Corpus("own", "here", {"train": lambda: iter(lines)})

    expected = hashlib.sha256(b"a b <eos>\nc <eos>\n").hexdigest()
    assert corpus("a b", "", "c\n").checksum("train") == expected == corpus("a  b ", "c").stamp("train")
    assert corpus("a", "b c").checksum("train") != expected


def test_a_stamp_follows_the_bytes(tmp_path):
    file = tmp_path / "train.txt"
    file.write_text("a b")
    corpus = load_corpus("wikitext-2", folder=tmp_path)
    before = corpus.stamp("train")
    assert before == hashlib.sha256(b"a b").hexdigest()
    os.utime(file, (0, 0))
    assert corpus.stamp("train") == before
    file.write_text("a c")
    assert corpus.stamp("train") != before


@pytest.mark.skipif(
    not (BELOW and (Path(BELOW) / "wikitext-2").is_dir()), reason="$SVMLIB_CORPORA has no folder wikitext-2"
)
def test_wikitext_2(monkeypatch):
    monkeypatch.setenv("SVMLIB_CORPORA", BELOW)
    corpus = load_corpus("wikitext-2")
    words = list(corpus.words("test"))
    blank = sum(not line.strip() for line in corpus.lines["test"]())
    assert len(words) + blank == 245_569  # the size that is published, with an end for each line
    assert words.count("<unk>") > 1000
