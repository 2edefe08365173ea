r"""Texts to train on: one embedded in Python itself, and WikiText from a folder or through Hugging Face.

A corpus is a stream of words for each of its splits. Nothing is held in memory, so that a corpus of a hundred
million words can be counted and encoded on a small machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from svmlib.errors import DataError

__all__ = ["EOS", "UNK", "Corpus", "load_corpus"]

UNK, EOS = "<unk>", "<eos>"
SPLITS = ("train", "valid", "test")
WIKITEXT = ("wikitext-2", "wikitext-103")
EMBEDDED = "python-topics"
VARIABLE = "SVMLIB_CORPORA"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[^\sa-z\d]")

Lines = Callable[[], Iterator[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text, as a stream of words for each split."""

    name: str
    """Its name."""
    source: str
    """Where it came from, in words."""
    lines: MappingProxyType[str, Lines] = field(repr=False)
    """Opens the lines of a split, each a text of words between spaces."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that are there, of "train", "valid" and "test"."""
        return tuple(self.lines)

    def words(self, split: str) -> Iterator[str]:
        """Stream the words of a split; every line that is not empty ends with ``<eos>``.

        Parameters
        ----------
        split : str
            One of ``splits``.

        Yields
        ------
        str
            The words.

        Raises
        ------
        DataError
            If there is no such split, or it has no word.
        """
        if split not in self.lines:
            raise DataError(f"{self.name} from {self.source} has no split {split!r}, only {', '.join(self.splits)}.")
        empty = True
        for line in self.lines[split]():
            found = line.split()
            if found:
                empty = False
                yield from found
                yield EOS
        if empty:
            raise DataError(f"The split {split!r} of {self.name} from {self.source} is empty: it has no word.")

    def checksum(self, split: str) -> str:
        """Hash the words of a split, so that results can name what they were computed from.

        Parameters
        ----------
        split : str
            One of ``splits``.

        Returns
        -------
        str
            SHA-256 in hexadecimal, the same wherever the words are the same.
        """
        digest = hashlib.sha256()
        for word in self.words(split):
            digest.update(word.encode())
            digest.update(b"\n" if word == EOS else b" ")
        return digest.hexdigest()


def load_corpus(name: str = EMBEDDED, *, folder: str | Path | None = None) -> Corpus:
    r"""Find a text to train on.

    Parameters
    ----------
    name : str
        "python-topics", the reference text that comes with Python (``pydoc_data.topics``; it differs between
        versions of Python), "wikitext-2" or "wikitext-103".
    folder : str or Path, optional
        Where the files of WikiText lie: ``wiki.train.tokens``, ``wiki.valid.tokens``, ``wiki.test.tokens`` as
        published, or ``train.txt`` and so on; at least one. By default the folder of that name below
        ``$SVMLIB_CORPORA``, and if there is none, Hugging Face ``datasets``.

    Returns
    -------
    Corpus
        Its splits as streams of words.

    Raises
    ------
    DataError
        If the name is unknown, or the text is found in none of these ways.

    Examples
    --------
    >>> corpus = load_corpus()
    >>> next(corpus.words("train")).isprintable()
    True
    """
    if name == EMBEDDED:
        if folder is not None:
            raise DataError(f"{EMBEDDED} comes with Python and needs no folder. Leave it out, or name {WIKITEXT[0]}.")
        return _embedded()
    if name not in WIKITEXT:
        raise DataError(f"There is no corpus {name!r}; choose one of {', '.join((EMBEDDED, *WIKITEXT))}.")
    below = os.environ.get(VARIABLE)
    if folder is not None:
        return _from_folder(name, Path(folder))
    if below and (Path(below) / name).is_dir():
        return _from_folder(name, Path(below) / name)
    return _from_hub(name)


def _three_ways(name: str, problem: str) -> DataError:
    return DataError(
        f"{problem} There are three ways to provide {name}: (1) load_corpus({name!r}, folder=F), where F holds "
        f"wiki.train.tokens, wiki.valid.tokens or wiki.test.tokens as published (or train.txt, valid.txt, test.txt); "
        f"(2) set {VARIABLE} to a folder with such a folder {name} inside; (3) install datasets "
        f'("pip install datasets") and let it download the text. Or take {EMBEDDED!r}, which needs no download.'
    )


def _from_folder(name: str, folder: Path) -> Corpus:
    if not folder.is_dir():
        raise _three_ways(name, f"{folder} is no folder.")
    found: dict[str, Lines] = {}
    for split in SPLITS:
        for file in (folder / f"wiki.{split}.tokens", folder / f"{split}.txt"):
            if file.is_file():
                found[split] = _reader(name, file)
                break
    if not found:
        raise _three_ways(name, f"{folder} has none of the files of {name}.")
    return Corpus(name, str(folder), MappingProxyType(found))


def _reader(name: str, file: Path) -> Lines:
    def lines() -> Iterator[str]:
        try:
            with file.open(encoding="utf-8") as stream:
                yield from stream
        except (OSError, UnicodeDecodeError) as error:
            raise _three_ways(name, f"{file} cannot be read as text ({error}).") from error

    return lines


def _from_hub(name: str) -> Corpus:
    try:
        import datasets
    except ImportError:
        raise _three_ways(name, f"{name} was not found, and the package datasets is not installed.") from None
    try:
        loaded: Any = datasets.load_dataset("Salesforce/wikitext", f"{name}-v1")
    except Exception as error:  # whatever the network, the hub or the cache does
        raise _three_ways(name, f"datasets could not provide {name} ({type(error).__name__}: {error}).") from error
    names = {"train": "train", "valid": "validation", "test": "test"}
    found = {split: _rows(loaded[key]) for split, key in names.items() if key in loaded}
    return Corpus(name, "Hugging Face datasets", MappingProxyType(found))


def _rows(table: Any) -> Lines:
    return lambda: (row["text"] for row in table)


def _embedded() -> Corpus:
    from pydoc_data import topics

    names = sorted(topics.topics)
    # every tenth topic is kept for validation, every tenth for testing: topics are alike within one, not across
    parts = {
        "train": [n for k, n in enumerate(names) if k % 10 < 8],
        "valid": names[8::10],
        "test": names[9::10],
    }

    def opens(chosen: list[str]) -> Lines:
        def lines() -> Iterator[str]:
            for topic in chosen:
                for paragraph in re.split(r"\n\s*\n", topics.topics[topic].lower()):
                    yield " ".join(WORD.findall(paragraph))

        return lines

    return Corpus(EMBEDDED, "pydoc_data.topics", MappingProxyType({s: opens(p) for s, p in parts.items()}))
