"""Files that appear complete or not at all, and what may be stored in them."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmlib.errors import DataError, SvmlibError

Arrays = dict[str, NDArray[Any]]

UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""What reading a damaged zip file of arrays may raise."""


class RecordError(SvmlibError, OSError):
    """A record or a part of it cannot be stored, is not there, is damaged, or has files of two runs."""


def plain(value: Any, name: str) -> Any:
    """Reduce an option to what JSON can hold and gives back unchanged.

    Parameters
    ----------
    value : object
        Numbers, texts, arrays, and sequences and mappings of them.
    name : str
        Where it is from, for the error message.

    Returns
    -------
    object
        Numpy values as Python values, sequences as tuples.

    Raises
    ------
    DataError
        If it is something else.
    """
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return plain(value.tolist(), name)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, range)):
        return tuple(plain(item, name) for item in value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    raise DataError(
        f"{name} must be made of numbers, texts, lists and arrays to be stored with the results, "
        f"got {type(value).__name__}."
    )


def checked_arrays(found: Any, where: str) -> Arrays:
    """Check what an experiment or a part of one returned.

    Parameters
    ----------
    found : mapping of str to array_like
        Arrays of numbers, truth values or texts.
    where : str
        Who returned it, for the error message.

    Returns
    -------
    dict of str to ndarray
        The same as arrays.

    Raises
    ------
    DataError
        If it is anything else, or a name could not be a file's.
    """
    if not isinstance(found, Mapping) or not found:
        raise DataError(
            f"{where} must return a dict of arrays, got {type(found).__name__} {str(found)[:40]!r}."
        )
    out = {}
    for key, value in found.items():
        if not (isinstance(key, str) and re.fullmatch(r"[A-Za-z]\w*", key, re.ASCII)):
            raise DataError(
                f"{where} returned an array called {key!r}; use letters, digits and _ (first a letter)."
            )
        try:
            out[key] = np.asarray(value)
            if out[key].dtype.kind not in "biufcU":
                raise ValueError(f"it has dtype {out[key].dtype}")
        except (ValueError, TypeError) as exc:
            raise DataError(
                f"{where}: {key!r} is no array of numbers, truth values or texts ({exc})."
            ) from exc
    return out


def writable(folder: str | os.PathLike[str]) -> Path:
    """Make a folder and see whether files can be made in it: before hours of work, not after.

    Parameters
    ----------
    folder : path_like
        Where results go.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    RecordError
        If it cannot be made or written.
    """
    where = Path(folder)
    probe = partial(where / "probe")
    try:
        where.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as exc:
        raise RecordError(
            f"cannot write to the folder {where}: {exc.strerror or exc}. "
            "Choose another one (--out on the command line)."
        ) from exc
    return where


def partial(target: Path) -> Path:
    """Name of the file in which a file grows until it is complete and takes the place of ``target``.

    Parameters
    ----------
    target : pathlib.Path
        The file to be written.

    Returns
    -------
    pathlib.Path
        In the same folder, another one for each process.
    """
    return target.with_name(f"{target.name}.{os.getpid()}.partial")


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file; unlike numpy's function this one has no reserved names and never pickles.

    Parameters
    ----------
    file : pathlib.Path
        Name of the file, any ending.
    arrays : mapping of str to ndarray
        What ``numpy.load`` gives back.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, a in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(a), allow_pickle=False)


def read_arrays(file: Path) -> Arrays:
    """Read an npz file completely, so that a damaged one is noticed here.

    Parameters
    ----------
    file : pathlib.Path
        The file.

    Returns
    -------
    dict of str to ndarray
        Its arrays.
    """
    # numpy itself leaves a damaged file open
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
