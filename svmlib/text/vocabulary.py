r"""Words as numbers: a vocabulary by frequency, and splits encoded once and kept on disk."""

from __future__ import annotations

import hashlib
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from svmlib.arrays import IntArray, check_integer, frozen
from svmlib.errors import DataError, ShapeError

from .corpus import UNK, Corpus

__all__ = ["Vocabulary", "build_vocabulary", "encode"]

BLOCK = 1 << 18  # words in memory at a time
FORMAT = 1  # of files in the cache; another number makes all of them anew
DIGEST = hashlib.sha256().digest_size


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
            raise DataError(
                f"The first word of a vocabulary is {UNK}, which stands for all that are not in it."
            )
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
            Words, one after another; those that are not in the vocabulary become 0. A text has to be split
            first, by :func:`~svmlib.text.tokenize` or ``str.split``.

        Returns
        -------
        ndarray of int64, shape (words,)
            Numbers.

        Raises
        ------
        DataError
            If the words are one text.
        """
        if isinstance(words, str):  # it would be taken letter by letter
            raise DataError(
                f"encode takes words, got one text of {len(words)} characters. Split it: tokenize(text) for "
                "the text that comes with Python, text.split() for WikiText."
            )
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
            If a number is not in the vocabulary, or is not whole.
        ShapeError
            If the numbers are not a list.
        """
        found = np.asarray(numbers)
        if found.ndim != 1:
            raise ShapeError(f"decode takes a list of numbers, got shape {found.shape}. Decode row by row.")
        if not found.size:
            return []
        if not np.issubdtype(found.dtype, np.integer):
            raise DataError(f"decode takes whole numbers of words, got {found.dtype}.")
        low, high = int(found.min()), int(found.max())
        if low < 0 or high >= len(self):
            raise DataError(
                f"The vocabulary has words 0..{len(self) - 1}, got numbers {low}..{high}. Decode with the "
                "vocabulary that encoded them."
            )
        return [self.words[n] for n in found.tolist()]

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
        and it was made from the same text and vocabulary; otherwise it is made anew. Several processes may
        share the folder.
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
    folder = Path(cache).expanduser()
    key = _key(corpus, split, vocabulary)
    file = folder / f"{corpus.name}-{split}-{key.hex()[:16]}.bin"
    if not _intact(file, key):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(file, key, _blocks(corpus, split, vocabulary, progress))
        except OSError as error:
            raise DataError(
                f"The encoded split cannot be kept in {folder} ({error}). Name a cache folder that can be "
                "written, or none."
            ) from error
    size = file.stat().st_size - DIGEST
    return np.memmap(file, np.int32, "r", shape=(size // 4,))


def _blocks(
    corpus: Corpus, split: str, vocabulary: Vocabulary, progress: bool
) -> Iterator[NDArray[np.int32]]:
    words = corpus.words(split)
    with tqdm(unit=" words", disable=not progress) as bar:
        while (block := vocabulary.encode(islice(words, BLOCK))).size:
            bar.update(block.size)
            yield block.astype(np.int32)


def _key(corpus: Corpus, split: str, vocabulary: Vocabulary) -> bytes:
    made_from = FORMAT, sys.byteorder, corpus.name, split, corpus.stamp(split), vocabulary.checksum
    return hashlib.sha256(repr(made_from).encode()).digest()


def _intact(file: Path, key: bytes) -> bool:
    # numbers, then the digest of key and numbers: what is broken, cut off or of another text counts as absent
    try:
        size = file.stat().st_size - DIGEST
        if size <= 0 or size % 4:
            return False
        digest = hashlib.sha256(key)
        with file.open("rb") as stream:
            while size > 0:
                chunk = stream.read(min(size, 1 << 20))
                if not chunk:
                    return False
                digest.update(chunk)
                size -= len(chunk)
            return stream.read() == digest.digest()
    except OSError:
        return False


def _write(file: Path, key: bytes, blocks: Iterable[NDArray[np.int32]]) -> None:
    # under a name of its own until it is whole: a killed run, or another process, leaves nothing half-written
    temporary = file.with_name(f"{file.stem}.{uuid.uuid4().hex}.part")
    digest = hashlib.sha256(key)
    try:
        with temporary.open("xb") as stream:
            for block in blocks:
                data = block.tobytes()
                digest.update(data)
                stream.write(data)
            stream.write(digest.digest())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
