r"""A text as a stream of words, one line in memory at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from svmlib.errors import DataError

__all__ = ["EOS", "UNK", "Corpus", "Lines", "tokenize"]

UNK, EOS = "<unk>", "<eos>"
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+|(\S)\1*")

Lines = Callable[[], Iterator[str]]


def tokenize(text: str) -> list[str]:
    """Split a text into words in lower case, numbers and signs.

    A run of one sign, as in a ruled line, is one word. The embedded text is made of these words. Those of
    WikiText are split already, between spaces, and keep their capitals: for a probe of it use ``str.split``.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        Words, an apostrophe inside one kept; no spaces, and no mark for the end of a line.

    Examples
    --------
    >>> tokenize("It isn't x__1 = 10.")
    ['it', "isn't", 'x', '__', '1', '=', '10', '.']
    """
    return [found.group() for found in WORD.finditer(text.lower())]


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text, as a stream of words for each split; a text of one's own needs a name, a source and lines."""

    name: str
    """Its name."""
    source: str
    """Where it came from, in words."""
    lines: Mapping[str, Lines] = field(repr=False)
    """Opens the lines of a split, each a text of words between spaces, from the start at each call."""
    stamps: Mapping[str, Callable[[], str]] = field(default_factory=dict, repr=False)
    """What tells a split from others faster than the checksum of its words, where there is one."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are there, of "train", "valid" and "test"."""
        return tuple(self.lines)

    def words(self, split: str) -> Iterator[str]:
        """Stream the words of a split; every line that has a word ends with ``<eos>``.

        Lines without a word are left out, with no ``<eos>``. Counts of tokens that are published for WikiText
        have one for these too: 245,569 for the test split of WikiText-2, where there are 244,102 here.

        Parameters
        ----------
        split : str
            One of ``splits``.

        Returns
        -------
        iterator of str
            The words, one line in memory at a time.

        Raises
        ------
        DataError
            If there is no such split or, while reading, if it turns out to have no word.
        """
        lines = self._sentences(split)
        return (word for line in lines for word in line)

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

        Raises
        ------
        DataError
            If there is no such split, or it has no word.
        """
        digest = hashlib.sha256()
        for line in self._sentences(split):
            digest.update(" ".join(line).encode() + b"\n")
        return digest.hexdigest()

    def stamp(self, split: str) -> str:
        """Tell the text of a split from others: a hash of its file, or of its words where there is none.

        Parameters
        ----------
        split : str
            One of ``splits``.

        Returns
        -------
        str
            A text that changes when the split does.

        Raises
        ------
        DataError
            If there is no such split, or it cannot be read.
        """
        self._check(split)
        return self.stamps[split]() if split in self.stamps else self.checksum(split)

    def _check(self, split: str) -> None:
        if split not in self.lines:
            raise DataError(
                f"{self.name} from {self.source} has no split {split!r}, only "
                f"{', '.join(self.splits) or 'none'}. Take one of these, or add the missing file (see "
                "load_corpus)."
            )

    def _sentences(self, split: str) -> Iterator[list[str]]:
        self._check(split)  # at once, not when the first word is asked for

        def sentences() -> Iterator[list[str]]:
            empty = True
            for line in self.lines[split]():
                if found := line.split():
                    empty = False
                    yield [*found, EOS]
            if empty:
                raise DataError(
                    f"The split {split!r} of {self.name} from {self.source} is empty: it has no word. "
                    "Replace its file by the published one, or take another split."
                )

        return sentences()
