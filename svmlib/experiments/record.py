"""What an experiment measured, with everything needed to measure it again, in memory and in two files."""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from svmlib.arrays import frozen

from ._files import (
    UNREADABLE,
    RecordError,
    checked_arrays,
    partial,
    plain,
    read_arrays,
    writable,
    write_arrays,
)

__all__ = ["Record", "RecordError", "load", "stored"]

ROOT = sys.modules["svmlib"]  # importing the package by name would be importing the layers above this one

FIELDS: dict[str, Any] = {
    "experiment": str,
    "trials": int,
    "seed": int,
    "device": str,
    "options": dict,
    "seconds": (int, float),
    "versions": dict,
    "arrays": dict,
    "sha256": str,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Record:
    """Arrays that an experiment measured, and how: ``record["name"]`` is one of them, read-only."""

    name: str
    """Name of the experiment."""
    arrays: Mapping[str, NDArray[Any]]
    """All arrays by name; the experiment's documentation says what they are."""
    trials: int
    """Number of trials."""
    seed: int
    """Seed of the first instance."""
    device: str
    """Where it trained: "cpu", "cuda", "cuda:N" or "auto"."""
    options: Mapping[str, Any]
    """All further arguments, those left at their defaults too; sequences are tuples."""
    seconds: float
    """Time for computing the arrays, in all runs together where one was interrupted and resumed."""
    versions: Mapping[str, str]
    """Versions of Python, svmlib and the libraries below it."""

    def __post_init__(self) -> None:
        arrays = {key: frozen(a) for key, a in checked_arrays(self.arrays, self.name).items()}
        for field, value in (
            ("arrays", arrays),
            ("options", plain(self.options, "options")),
            ("versions", dict(self.versions)),
        ):
            object.__setattr__(self, field, MappingProxyType(value))

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key not in self.arrays:
            close = difflib.get_close_matches(str(key), self.arrays, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f": {', '.join(self.arrays)}"
            raise KeyError(f"{self.name} has no array {key!r}, it has {len(self.arrays)}{hint}")
        return self.arrays[key]

    def __contains__(self, key: object) -> bool:
        return key in self.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every array, by name.

        Returns
        -------
        dict of str to tuple of int
            In the order of ``arrays``.
        """
        return {key: a.shape for key, a in self.arrays.items()}

    def __repr__(self) -> str:
        trials = f"{self.trials} trial{'s' * (self.trials != 1)}"
        shown = [f"{key} {shape}" for key, shape in list(self.sizes.items())[:6]]
        rest = [f"{len(self) - 6} more"] if len(self) > 6 else []
        return (
            f"<Record of {self.name}: {trials} from seed {self.seed}, {self.seconds:.1f} s; "
            f"{', '.join(shown + rest)}>"
        )

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Store the record as NAME.npz and NAME.json; a stop halfway leaves an older pair as it was.

        Parameters
        ----------
        folder : path_like
            Where; made if it is not there.

        Returns
        -------
        pathlib.Path
            The file with the arrays. :func:`load` reads the pair.

        Raises
        ------
        RecordError
            If the folder cannot be written.
        """
        target = writable(folder) / f"{self.name}.npz"
        about = target.with_suffix(".json")
        new, new_about = partial(target), partial(about)
        try:
            write_arrays(new, self.arrays)
            fields = {
                "experiment": self.name,
                "trials": self.trials,
                "seed": self.seed,
                "device": self.device,
                "options": dict(self.options),
                "seconds": self.seconds,
                "versions": dict(self.versions),
                "arrays": self.sizes,
                "sha256": hashlib.sha256(new.read_bytes()).hexdigest(),
            }
            new_about.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
            new.replace(target)
            new_about.replace(about)
        except OSError as exc:
            raise RecordError(f"cannot store {target}: {exc}. Choose another folder.") from exc
        finally:
            new.unlink(missing_ok=True)
            new_about.unlink(missing_ok=True)
        return target


def load(path: str | os.PathLike[str]) -> Record:
    """Read a record that :meth:`Record.save` or ``svmlib reproduce`` stored.

    Parameters
    ----------
    path : path_like
        Either of its files, or FOLDER/NAME without an ending.

    Returns
    -------
    Record
        Equal to the one that was stored.

    Raises
    ------
    RecordError
        If a file is missing or damaged, or the two are not of one run.
    """
    stem = re.sub(r"\.(npz|json)$", "", os.fspath(Path(path)))
    target, about = Path(f"{stem}.npz"), Path(f"{stem}.json")
    for file in (target, about):
        if not file.is_file():
            raise RecordError(f"there is no file {file}. {_present(Path(stem))}")
    again = f"Run the experiment again: svmlib reproduce {target.stem} --out {target.parent}"
    try:
        fields = json.loads(about.read_text(encoding="utf-8"))
        missing = [k for k, kind in FIELDS.items() if not isinstance(fields.get(k), kind)]
    except (OSError, ValueError, AttributeError) as exc:
        raise RecordError(f"{about} is damaged ({exc}). {again}") from exc
    if missing:
        raise RecordError(f"{about} is no record: {', '.join(missing)} missing or of a wrong type. {again}")
    try:
        whole = hashlib.sha256(target.read_bytes()).hexdigest() == fields["sha256"]
        arrays = read_arrays(target)
    except UNREADABLE as exc:
        raise RecordError(f"{target} is damaged ({exc}). {again}") from exc
    sizes = {key: list(a.shape) for key, a in arrays.items()}
    if not whole or sizes != fields["arrays"] or fields["experiment"] != target.stem:
        raise RecordError(f"{target.name} and {about.name} in {target.parent} are not of one run. {again}")
    values = {k: fields[k] for k in ("trials", "seed", "device", "options", "seconds", "versions")}
    return Record(name=fields["experiment"], arrays=arrays, **values)


STORED = Path(__file__).parent / "records"
"""Records that come with the package: of experiments too long for every build of the book."""


def stored(name: str) -> Record:
    """Read a record that comes with the package, of an experiment too long for every build of the book.

    ``svmlib reproduce NAME --out svmlib/experiments/records`` in a checkout of the repository makes it again.

    Parameters
    ----------
    name : str
        Name of the experiment.

    Returns
    -------
    Record
        What was measured, and with which versions.

    Raises
    ------
    RecordError
        If there is no such record; the message names those that there are.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.experiments.stored("p1_composition")["widths"]
    array([ 4,  6,  8, 10])
    """
    names = sorted(f.stem for f in STORED.glob("*.npz"))
    if not isinstance(name, str) or name not in names:
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise RecordError(
            f"No record of {name!r} comes with the package.{hint} There are: {', '.join(names) or 'none'}. "
            "Run the experiment itself: svmlib reproduce --list names them."
        )
    return load(STORED / name)


def _present(stem: Path) -> str:
    folder = stem if stem.is_dir() else stem.parent
    if not folder.is_dir():
        return f"The folder {folder} does not exist."
    names = sorted(f.stem for f in folder.glob("*.npz") if f.with_suffix(".json").is_file())
    return f"Records in {folder}: {', '.join(names) if names else 'none'}."


def versions() -> dict[str, str]:
    """Return the versions of Python, svmlib and the libraries that decide about its numbers.

    Returns
    -------
    dict of str to str
        Libraries that are not installed are left out.
    """
    out = {"python": platform.python_version(), "svmlib": ROOT.__version__}
    for library in ("numpy", "scipy", "torch", "cvxpy", "clarabel"):
        try:
            out[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out
