"""Finished parts of a running experiment, stored so that an interrupted run can go on."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from svmlib.errors import DataError

from ._files import UNREADABLE, Arrays, RecordError, checked_arrays, partial, read_arrays, write_arrays
from .record import versions

MARK, SECONDS = "_fingerprint", "_seconds"  # arrays of an experiment never begin with _
WITHOUT_NUMBERS = ("checks", "plot", "widgets", "cli.py")


@functools.cache
def _code() -> str:
    """Digest of the library's code: parts from before a change are not mixed with those after it."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.relative_to(root).parts[0] not in WITHOUT_NUMBERS:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def fingerprint(mark: Mapping[str, Any]) -> dict[str, str]:
    """Everything that a part's numbers depend on, as texts."""
    about = {**mark, "scale": os.environ.get("SVMLIB_SCALE") or "full", **versions(), "code": _code()}
    return {key: json.dumps(value, sort_keys=True) for key, value in about.items()}


class Parts:
    """Parts of one run: in memory only, or in a folder too."""

    def __init__(self, folder: Path | None = None, mark: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.mark = dict(mark or {})
        self.keys: list[str] = []
        self.seconds = 0.0  # spent on the parts that were taken from an earlier run
        self.warned = False

    def get(self, key: str, compute: Callable[[], Mapping[str, Any]]) -> Arrays:
        """Return the stored part, or compute and store it."""
        if not re.fullmatch(r"[\w.=+-]+", key, re.ASCII) or key.startswith("."):
            raise DataError(f'A part\'s key must be made of letters, digits and "._=+-", got {key!r}.')
        if key.casefold() in map(str.casefold, self.keys):  # some file systems ignore case
            raise DataError(f"Two parts have the key {key!r}: name each part differently.")
        found = self._stored(key)
        if found is None:
            started = time.perf_counter()
            found = checked_arrays(compute(), f"Part {key!r}")
            self._store(key, found, time.perf_counter() - started)
        self.keys.append(key)
        return found

    def _file(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{key}.npz"

    def _stored(self, key: str) -> Arrays | None:
        file = self._file(key)
        if file is None or not file.exists():
            return None
        try:
            arrays = read_arrays(file)
            mark = json.loads(str(arrays.pop(MARK)))
            seconds = float(arrays.pop(SECONDS))
            arrays = checked_arrays(arrays, str(file))
        except UNREADABLE as exc:
            warnings.warn(f"{file} is damaged and is computed again ({exc}).", UserWarning, stacklevel=4)
            return None
        if mark != {**self.mark, "key": key}:
            self._warn_of_other_run(mark)
            return None
        self.seconds += seconds
        return arrays

    def _warn_of_other_run(self, mark: Mapping[str, str]) -> None:
        if self.warned:
            return
        self.warned = True
        now = {key: value for key, value in self.mark.items() if mark.get(key) != value}
        text = "; ".join(
            "the library's code has changed" if key == "code" else f"{key} {mark.get(key)}, now {value}"
            for key, value in now.items()
        )
        warnings.warn(
            f"the parts in {self.folder} are from another run ({text}) and are computed again.",
            UserWarning,
            stacklevel=5,
        )

    def _store(self, key: str, arrays: Arrays, seconds: float) -> None:
        file = self._file(key)
        if file is None:
            return
        mark = json.dumps({**self.mark, "key": key})
        growing = partial(file)
        try:
            file.parent.mkdir(exist_ok=True)
            write_arrays(growing, {**arrays, MARK: np.array(mark), SECONDS: np.array(seconds)})
            growing.replace(file)
        except OSError as exc:
            raise RecordError(f"cannot store {file}: {exc}. Finished parts are kept.") from exc
        finally:
            growing.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the stored parts, also those that a run of another size has left."""
        if self.folder is not None and self.folder.is_dir():
            for file in (*self.folder.glob("*.npz"), *self.folder.glob("*.partial")):
                file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not ours: somebody put a file there
                self.folder.rmdir()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an experiment, with what is kept of it."""

    def __init__(self, name: str, parts: Parts) -> None:
        count = len(parts.keys)
        if parts.folder is None:
            text = "nothing is stored: no folder was given"
        elif not count:
            text = "no part was finished yet"
        else:
            text = f"{count} finished part{'s are' if count > 1 else ' is'} kept in {parts.folder}"
        super().__init__(f"{name} was interrupted; {text}.")
        self.kept = count if parts.folder is not None else 0
