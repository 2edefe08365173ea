r"""Words as numbers: a vocabulary by frequency, and splits encoded once and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from svmlib.arrays import IntArray, check_integer, frozen
from svmlib.errors import DataError

from .corpora import UNK, Corpus

__all__ = ["Vocabulary", "build_vocabulary", "encode"]

BLOCK = 1 << 20  # words in memory at a time


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Words in order of falling frequency; number 0 stands for all words that are not in it."""

    words: tuple[str, ...]
    """Words, ``<unk>`` first."""
    counts: IntArray
    """How often each occurs in the text that the vocabulary was made from."""
    numbers: dict[str, int] = field(init=False, repr=False)
    """Number of each word."""

    def __post_init__(self) -> None:
        if not self.words or self.words[0] != UNK:
            raise DataError(f"The first word of a vocabulary is {UNK}, which stands for all that are not in it.")
        if len(set(self.words)) < len(self.words) or len(self.counts) != len(self.words):
            raise DataError("Words of a vocabulary must differ, and have one count each.")
        object.__setattr__(self, "numbers", {w: k for k, w in enumerate(self.words)})

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> IntArray:
        """Turn words into their numbers.

        Parameters
        ----------
        words : iterable of str
            Words; those that are not in the vocabulary become 0.

        Returns
        -------
        ndarray of int64
            Numbers.
        """
        return np.fromiter((self.numbers.get(w, 0) for w in words), np.int64)

    def decode(self, numbers: Sequence[int] | IntArray) -> list[str]:
        """Turn numbers into words.

        Parameters
        ----------
        numbers : sequence of int
            Numbers from 0 to the size of the vocabulary less one.

        Returns
        -------
        list of str
            Words.

        Raises
        ------
        DataError
            If a number is not in the vocabulary.
        """
        found = [int(n) for n in numbers]
        if found and not 0 <= min(found) <= max(found) < len(self):
            raise DataError(f"The vocabulary has words 0..{len(self) - 1}, got numbers {min(found)}..{max(found)}.")
        return [self.words[n] for n in found]

    @property
    def checksum(self) -> str:
        """SHA-256 of the words in their order."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()


def build_vocabulary(
    corpus: Corpus, split: str = "train", *, size: int | None = None, min_count: int = 1
) -> Vocabulary:
    """Count the words of a split and keep the frequent ones.

    Parameters
    ----------
    corpus : Corpus
        The text.
    split : str
        The split to count.
    size : int, optional
        Largest number of words, with ``<unk>``.
    min_count : int
        Words that occur less often are left out.

    Returns
    -------
    Vocabulary
        Words by falling frequency, equal ones in alphabetical order: the same on every machine.

    Raises
    ------
    DataError
        If the split is missing or empty, or no word is left.
    """
    least = check_integer(min_count, "min_count")
    most = None if size is None else check_integer(size, "size", 2)
    counts = Counter(corpus.words(split))
    total = sum(counts.values())
    counts.pop(UNK, None)  # what the publishers had already left out stays out
    kept = sorted((w for w, k in counts.items() if k >= least), key=lambda w: (-counts[w], w))
    kept = kept[: None if most is None else most - 1]
    if not kept:
        raise DataError(
            f"No word of the split {split!r} of {corpus.name} occurs {least} times. Use a smaller min_count."
        )
    inside = [counts[w] for w in kept]
    return Vocabulary((UNK, *kept), frozen(np.array([total - sum(inside), *inside])))


def encode(
    corpus: Corpus,
    split: str,
    vocabulary: Vocabulary,
    *,
    cache: str | Path | None = None,
    progress: bool = False,
) -> NDArray[np.int32]:
    """Turn a split into numbers, from a file where that was done before.

    Parameters
    ----------
    corpus : Corpus
        The text.
    split : str
        The split.
    vocabulary : Vocabulary
        The words.
    cache : str or Path, optional
        Folder for encoded splits; by default nothing is kept. A file there is used if its checksum is right
        and it was made from the same words and vocabulary; otherwise it is made anew.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    ndarray of int32, shape (words,)
        Numbers, mapped from the file where there is one, so that a large text needs no memory. Read-only.

    Raises
    ------
    DataError
        If the split is missing or empty, or the cache cannot be written.
    """
    if cache is None:
        blocks = list(_blocks(corpus, split, vocabulary, progress))
        out = np.concatenate(blocks)
        out.setflags(write=False)
        return out
    folder = Path(cache)
    key = {"words": corpus.checksum(split), "vocabulary": vocabulary.checksum}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    file = folder / f"{corpus.name}-{split}-{name}.bin"
    found = _cached(file, key)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, key, _blocks(corpus, split, vocabulary, progress))
    except OSError as error:
        raise DataError(f"The encoded split cannot be kept in {folder} ({error}). Name another cache folder.") from error
    found = _cached(file, key)
    assert found is not None
    return found


def _blocks(corpus: Corpus, split: str, vocabulary: Vocabulary, progress: bool) -> Iterable[NDArray[np.int32]]:
    words = corpus.words(split)
    with tqdm(unit=" words", disable=not progress) as bar:
        while (block := vocabulary.encode(islice(words, BLOCK))).size:
            bar.update(block.size)
            yield block.astype(np.int32)


def _sidecar(file: Path) -> Path:
    return file.with_suffix(".json")


def _cached(file: Path, key: dict[str, str]) -> NDArray[np.int32] | None:
    # what is broken, cut off or of another text counts as absent
    try:
        about = json.loads(_sidecar(file).read_text(encoding="utf-8"))
        if any(about.get(k) != v for k, v in key.items()) or about.get("sha256") != _digest(file):
            return None
        return np.memmap(file, np.int32, "r")
    except (OSError, ValueError, AttributeError):
        return None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(file: Path, key: dict[str, str], blocks: Iterable[NDArray[np.int32]]) -> None:
    # a killed run leaves no half-written file under the final name
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.stem)
    try:
        with os.fdopen(handle, "wb") as stream:
            for block in blocks:
                block.tofile(stream)
        about = {**key, "sha256": _digest(Path(temporary))}
        Path(temporary).replace(file)
        _sidecar(file).write_text(json.dumps(about, indent=1), encoding="utf-8")
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
