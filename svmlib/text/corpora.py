r"""Texts to train on: one embedded in Python itself, and WikiText from a folder or through Hugging Face."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from svmlib.errors import DataError

from .corpus import Corpus, Lines, tokenize

__all__ = ["load_corpus"]

SPLITS = ("train", "valid", "test")
WIKITEXT = ("wikitext-2", "wikitext-103")
EMBEDDED = "python-topics"
VARIABLE = "SVMLIB_CORPORA"


def load_corpus(name: str = EMBEDDED, *, folder: str | Path | None = None) -> Corpus:
    r"""Find a text to train on.

    Parameters
    ----------
    name : str
        "python-topics", the reference text that comes with Python (``pydoc_data.topics``), "wikitext-2" or
        "wikitext-103".
    folder : str or Path, optional
        Where the files of WikiText lie: ``wiki.train.tokens``, ``wiki.valid.tokens``, ``wiki.test.tokens`` as
        published, or ``train.txt`` and so on; at least one. By default the folder of that name below
        ``$SVMLIB_CORPORA``, and if there is none, Hugging Face ``datasets``, which downloads the text.

    Returns
    -------
    Corpus
        Its splits as streams of words.

    Raises
    ------
    DataError
        If the name is unknown, or the text is found in none of these ways.

    Notes
    -----
    Words of WikiText are taken as published: between spaces, with capitals, with ``<unk>`` for rare ones and
    ``@-@`` for a hyphen; a heading ``= Title =`` is a line like others. Files are read line by line; what
    ``datasets`` loads lies in Arrow tables mapped from disk. Both fit in little memory.

    The reference text is split by :func:`tokenize`, in lower case, and a paragraph is a line. Topics in
    alphabetical order are dealt to the splits: of ten, eight are for training, then one for validation and
    one for testing. The text differs between versions of Python, so results on it should name its
    ``checksum``.

    Examples
    --------
    >>> corpus = load_corpus()
    >>> next(corpus.words("train")).isprintable()
    True
    """
    if name == EMBEDDED:
        if folder is not None:
            raise DataError(
                f"{EMBEDDED} comes with Python and needs no folder. Leave it out, or name {WIKITEXT[0]}."
            )
        return _embedded()
    if name not in WIKITEXT:
        raise DataError(f"There is no corpus {name!r}; choose one of {', '.join((EMBEDDED, *WIKITEXT))}.")
    if folder is not None:
        return _from_folder(name, Path(folder).expanduser())
    below = os.environ.get(VARIABLE)
    if not below:
        return _from_hub(name, f"{VARIABLE} is not set")
    place = Path(below).expanduser() / name
    if place.is_dir():
        return _from_folder(name, place)
    return _from_hub(name, f"{VARIABLE} is set, but {place} is no folder")


def _three_ways(name: str, problem: str) -> DataError:
    return DataError(
        f"{problem} There are three ways to provide {name}: (1) load_corpus({name!r}, folder=F), where F "
        "holds wiki.train.tokens, wiki.valid.tokens or wiki.test.tokens as published (or train.txt, "
        f"valid.txt, test.txt); (2) set {VARIABLE} to a folder with such a folder {name} inside; (3) install "
        f'datasets ("pip install datasets", with a network) and let it download the text. Or take '
        f"{EMBEDDED!r}, which needs no download."
    )


def _from_folder(name: str, folder: Path) -> Corpus:
    if not folder.is_dir():
        raise _three_ways(name, f"{folder} is no folder.")
    files: dict[str, Path] = {}
    for split in SPLITS:
        for file in (folder / f"wiki.{split}.tokens", folder / f"{split}.txt"):
            if file.is_file():
                files[split] = file
                break
    if not files:
        raise _three_ways(name, f"{folder} has none of the files of {name}.")
    return Corpus(
        name,
        str(folder),
        MappingProxyType({split: partial(_lines, name, file) for split, file in files.items()}),
        MappingProxyType({split: partial(_file_stamp, name, file) for split, file in files.items()}),
    )


def _lines(name: str, file: Path) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8-sig") as stream:  # a mark of the byte order is no part of a word
            yield from stream
    except (OSError, UnicodeDecodeError) as error:
        raise _three_ways(name, f"{file} cannot be read as text ({error}).") from error


def _file_stamp(name: str, file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _three_ways(name, f"{file} cannot be read ({error}).") from error


def _from_hub(name: str, looked: str) -> Corpus:
    try:
        import datasets
    except ImportError as error:
        raise _three_ways(
            name, f"{name} was not found: {looked}, and the package datasets cannot be imported ({error})."
        ) from error
    try:
        loaded: Any = datasets.load_dataset("Salesforce/wikitext", f"{name}-v1")
    except Exception as error:  # whatever the network, the hub or its cache does
        raise _three_ways(
            name, f"{looked}, and datasets could not provide {name} ({type(error).__name__}: {error})."
        ) from error
    names = {"train": "train", "valid": "validation", "test": "test"}
    found = {split: partial(_rows, loaded[key]) for split, key in names.items() if key in loaded}
    if not found:
        raise _three_ways(name, f"datasets gave {name} without train, validation and test.")
    return Corpus(name, "Hugging Face datasets", MappingProxyType(found))


def _rows(table: Any) -> Iterator[str]:
    return (row["text"] for row in table)


def _embedded() -> Corpus:
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise DataError(
            f"This Python was installed without pydoc_data, the text of {EMBEDDED!r} ({error}). Install the "
            f"whole standard library, or take {WIKITEXT[0]!r}."
        ) from error

    names = sorted(topics.topics)
    # whole topics are kept apart: paragraphs of one topic repeat each other
    parts = {
        "train": [n for k, n in enumerate(names) if k % 10 < 8],
        "valid": names[8::10],
        "test": names[9::10],
    }

    def opens(chosen: list[str]) -> Lines:
        def lines() -> Iterator[str]:
            for topic in chosen:
                for paragraph in re.split(r"\n\s*\n", topics.topics[topic]):
                    yield " ".join(tokenize(paragraph))

        return lines

    return Corpus(EMBEDDED, "pydoc_data.topics", MappingProxyType({s: opens(p) for s, p in parts.items()}))
