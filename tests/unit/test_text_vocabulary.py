"""Vocabularies, and encoded splits that are kept on disk: counts, unknown words, broken and shared caches."""

from __future__ import annotations

import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svmlib.errors import DataError, ShapeError
from svmlib.text import EOS, UNK, Corpus, Vocabulary, build_vocabulary, encode, load_corpus, tokenize

LINES = ("b a b", "", "<unk> c a", "d <unk>")
module = import_module("svmlib.text.vocabulary")


def corpus(*lines, name="own"):
    return Corpus(name, "here", {"train": lambda: iter(lines)})


def test_words_by_frequency_then_alphabet():
    V = build_vocabulary(corpus(*LINES))
    assert V.words == (UNK, EOS, "a", "b", "c", "d")
    assert V.counts.tolist() == [2, 3, 2, 2, 1, 1]
    assert len(V) == 6
    assert V.checksum == build_vocabulary(corpus(*LINES[::-1])).checksum
    with pytest.raises(ValueError, match="read-only"):
        V.counts[0] = 1


@pytest.mark.parametrize(
    ("size", "min_count", "words", "unknown"),
    [
        (None, 2, (UNK, EOS, "a", "b"), 4),
        (3, 1, (UNK, EOS, "a"), 6),
        (2, 1, (UNK, EOS), 8),
        (99, 3, (UNK, EOS), 8),
        (6, 1, (UNK, EOS, "a", "b", "c", "d"), 2),
    ],
)
def test_size_and_min_count(size, min_count, words, unknown):
    V = build_vocabulary(corpus(*LINES), size=size, min_count=min_count)
    assert V.words == words
    assert V.counts[0] == unknown
    assert V.counts.sum() == sum(1 for _ in corpus(*LINES).words("train"))
    numbers = encode(corpus(*LINES), "train", V)
    np.testing.assert_array_equal(np.bincount(numbers, minlength=len(V)), V.counts)


def test_wrong_sizes():
    with pytest.raises(ShapeError, match="size"):
        build_vocabulary(corpus(*LINES), size=1)
    with pytest.raises(ShapeError, match="min_count"):
        build_vocabulary(corpus(*LINES), min_count=0)
    with pytest.raises(DataError, match=r"occurs 9 times. Use a smaller min_count"):
        build_vocabulary(corpus(*LINES), min_count=9)
    with pytest.raises(DataError, match="is empty"):
        build_vocabulary(corpus(" ", ""))
    with pytest.raises(DataError, match="no split 'test'"):
        build_vocabulary(corpus("a"), "test")


def test_unknown_words_are_0():
    V = build_vocabulary(corpus(*LINES))
    assert V.encode(["a", "zebra", UNK, "", "A"]).tolist() == [2, 0, 0, 0, 0]
    assert V.decode(V.encode(["a", "zebra"])) == ["a", UNK]
    assert V.encode(iter([])).tolist() == V.decode([]) == []
    python = build_vocabulary(load_corpus(), size=500)
    assert python.decode(python.encode(tokenize("The zyzzyva statement"))) == ["the", UNK, "statement"]


def test_a_text_is_not_taken_letter_by_letter():
    with pytest.raises(DataError, match=r"one text of 3 characters.*tokenize"):
        build_vocabulary(corpus(*LINES)).encode("a b")


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ([0, 6], DataError, r"0\.\.5, got numbers 0\.\.6"),
        ([-1], DataError, r"got numbers -1\.\.-1"),
        ([1.5], DataError, "whole numbers"),
        ([True], DataError, "whole numbers"),
        ([[1]], ShapeError, r"shape \(1, 1\)"),
    ],
)
def test_numbers_that_are_no_words(numbers, error, message):
    with pytest.raises(error, match=message):
        build_vocabulary(corpus(*LINES)).decode(numbers)


def test_a_vocabulary_by_hand():
    one = np.ones(2, np.int64)
    assert Vocabulary((UNK, "a"), one).encode(["a"]).tolist() == [1]
    for words in ((), ("a", UNK)):
        with pytest.raises(DataError, match="first word"):
            Vocabulary(words, one)
    for words in ((UNK, "a", "a"), (UNK, "a", "b")):
        with pytest.raises(DataError, match="must differ"):
            Vocabulary(words, one)


WORD = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1).filter(lambda w: len(w.split()) == 1)


@given(st.lists(st.lists(WORD, min_size=1), min_size=1), st.integers(1, 3), st.integers(2, 9))
def test_round_trip(lines, min_count, size):
    text = corpus(*(" ".join(line) for line in lines))
    words = list(text.words("train"))
    whole = build_vocabulary(text)
    assert whole.decode(encode(text, "train", whole)) == words
    if max(words.count(w) for w in words if w != UNK) < min_count:
        return
    V = build_vocabulary(text, min_count=min_count, size=size)
    assert len(V) <= size
    assert V.decode(V.encode(words)) == [w if w in V.words else UNK for w in words]
    assert all(words.count(w) >= min_count for w in V.words[1:])
    assert sorted(V.counts[1:].tolist(), reverse=True) == V.counts[1:].tolist()


@given(st.text())
def test_the_tokenizer_loses_nothing_but_spaces(text):
    words = tokenize(text)
    assert "".join(words) == "".join(text.lower().split())
    assert all(len(w.split()) == 1 for w in words)


# The cache


@pytest.fixture
def case(tmp_path):
    """A text in a file, its vocabulary and a folder for the cache."""
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n")
    text = load_corpus("wikitext-2", folder=tmp_path)
    return text, build_vocabulary(text), tmp_path / "deep" / "cache"


@pytest.fixture
def made(monkeypatch):
    """Count how often a split is encoded anew."""
    calls = []
    true = module._blocks
    monkeypatch.setattr(module, "_blocks", lambda *a: calls.append(1) or true(*a))
    return calls


def test_cache(case, made):
    text, V, folder = case
    plain = encode(text, "train", V)
    first, again = encode(text, "train", V, cache=folder), encode(text, "train", V, cache=str(folder))
    assert len(made) == 2  # the plain one, and the first with a cache
    for found in (first, again):
        np.testing.assert_array_equal(found, plain)
        assert found.dtype == plain.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
    assert isinstance(again, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        plain[0] = 1
    (file,) = folder.iterdir()
    assert file.name.startswith("wikitext-2-train-")


def flip(k):
    def change(data):
        out = bytearray(data)
        out[k] ^= 1
        return bytes(out)

    return change


@pytest.mark.parametrize(
    "change",
    [
        flip(0),
        flip(-33),
        flip(-1),
        lambda data: data[:-1],
        lambda data: data[4:],
        lambda data: data[:32],
        lambda data: data[:-36] + data[-32:],
        lambda data: data + bytes(4),
        lambda data: b"",
        lambda data: b'{"sha256": "no"}',
    ],
)
def test_a_broken_cache_is_made_anew(case, made, change):
    text, V, folder = case
    whole = np.array(encode(text, "train", V, cache=folder))
    (file,) = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(change(good))
    np.testing.assert_array_equal(encode(text, "train", V, cache=folder), whole)
    assert len(made) == 2
    assert file.read_bytes() == good
    assert list(folder.iterdir()) == [file]


def test_a_file_of_another_text_is_made_anew(case, made):
    text, V, folder = case
    encode(text, "train", V, cache=folder)
    (file,) = folder.iterdir()
    good = file.read_bytes()
    small = build_vocabulary(text, size=2)
    encode(text, "train", small, cache=folder)
    (other,) = set(folder.iterdir()) - {file}
    file.write_bytes(other.read_bytes())
    encode(text, "train", V, cache=folder)
    assert file.read_bytes() == good
    assert len(made) == 3


def test_a_changed_text_has_a_file_of_its_own(case):
    text, V, folder = case
    encode(text, "train", V, cache=folder)
    Path(text.source, "train.txt").write_text("c c a")
    assert V.decode(encode(text, "train", V, cache=folder)) == ["c", "c", "a", EOS]
    assert len(list(folder.iterdir())) == 2


def test_a_run_that_stops_leaves_nothing(case, monkeypatch):
    text, V, folder = case

    def stopped(*_):
        yield np.zeros(3, np.int32)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_blocks", stopped)
        with pytest.raises(KeyboardInterrupt):
            encode(text, "train", V, cache=folder)
    assert not list(folder.iterdir())
    assert len(encode(text, "train", V, cache=folder)) == 11


def test_many_at_once(case):
    text, V, folder = case
    plain = encode(text, "train", V)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: encode(text, "train", V, cache=folder), range(40)):
            np.testing.assert_array_equal(found, plain)
    assert len(list(folder.iterdir())) == 1


def test_a_cache_that_cannot_be_written(case, monkeypatch):
    text, V, folder = case
    folder.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot be kept in .*cache .*Name a cache folder"):
        encode(text, "train", V, cache=folder)
    folder.parent.unlink()
    encode(text, "train", V, cache=folder)

    def denied(self, mode="r", **_):
        raise PermissionError(13, "Permission denied")

    good = np.array(encode(text, "train", V))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", lambda *_: denied(None))
        np.testing.assert_array_equal(encode(text, "train", V, cache=folder), good)  # reading is enough
        with pytest.raises(DataError, match="Permission denied"):
            encode(text, "train", build_vocabulary(text, size=2), cache=folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(case):
    text, V, folder = case
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    with pytest.raises(DataError, match="Permission denied"):
        encode(text, "train", V, cache=folder)


def test_empty_and_missing_splits_leave_no_file(tmp_path):
    V = build_vocabulary(corpus("a"))
    for cache in (None, tmp_path):
        with pytest.raises(DataError, match="is empty"):
            encode(corpus(" "), "train", V, cache=cache)
        with pytest.raises(DataError, match="no split 'valid'"):
            encode(corpus("a"), "valid", V, cache=cache)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("block", [1, 5, 11, 12])
def test_blocks(case, monkeypatch, block):
    text, V, folder = case
    plain = encode(text, "train", V)
    monkeypatch.setattr(module, "BLOCK", block)
    np.testing.assert_array_equal(encode(text, "train", V), plain)
    np.testing.assert_array_equal(encode(text, "train", V, cache=folder), plain)


def test_a_million_words_are_never_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 1 << 14)
    text = Corpus("long", "here", {"train": lambda: (f"w{k % 97} x y z x y z" for k in range(125_000))})
    tracemalloc.start()
    try:
        V = build_vocabulary(text)
        found = encode(text, "train", V, cache=tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 1_000_000 == V.counts.sum()
    assert peak < 1_000_000  # bytes: less than one for each word
