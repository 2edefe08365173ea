"""What every experiment shares: its entry in the list, its arguments, finished parts, and the record."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from tqdm import tqdm

from svmlib.arrays import check_integer, resolve_device
from svmlib.errors import DataError

from . import _documentation
from ._files import Arrays, checked_arrays, plain, writable
from ._parts import Interrupted, Parts, fingerprint
from .record import Record, versions

__all__ = ["EXPERIMENTS", "Experiment", "Task", "experiment", "trials"]

P = ParamSpec("P")
T = TypeVar("T")

EXPERIMENTS: dict[str, Experiment] = {}
"""All experiments by name, as ``svmlib reproduce --list`` shows them; each can be called."""

STANDARD = ("trials", "seed", "device", "progress", "folder")


def trials(full: int, test: int) -> int:
    """Number of trials for this build: ``full``, or ``test`` where SVMLIB_SCALE=test asks for a small one.

    Only numbers of repetitions shrink this way, never a size or a number of steps that a claim depends on.

    Parameters
    ----------
    full, test : int
        Numbers for the two scales.

    Returns
    -------
    int
        One of them.

    Raises
    ------
    DataError
        If SVMLIB_SCALE is set to anything but "full" or "test".
    """
    scale = os.environ.get("SVMLIB_SCALE") or "full"
    if scale not in ("full", "test"):
        raise DataError(f'SVMLIB_SCALE must be "full" or "test", got {scale!r}.')
    return full if scale == "full" else test


class Task:
    """What a running experiment is told, and how it stores its parts.

    Parameters
    ----------
    trials : int
        Number of trials.
    seed : int
        Seed of the first instance.
    device : str, optional
        Where to train, to be handed on to :func:`svmlib.dynamics.train`.
    show_progress : bool
        Whether to show progress bars.
    """

    def __init__(
        self,
        trials: int,
        seed: int = 0,
        device: str | None = None,
        show_progress: bool = False,
    ) -> None:
        self.trials = trials
        self.seed = seed
        self.device = device
        self.show_progress = show_progress
        self._parts = Parts()

    def part(self, key: str, f: Callable[P, Mapping[str, Any]], *args: P.args, **kwargs: P.kwargs) -> Arrays:
        """Compute a part, or take it from an interrupted run of the same experiment.

        Parameters
        ----------
        key : str
            Name of the part, another one for each: letters, digits and any of "._=+-".
        f : callable
            Computes it, a dict of arrays.
        *args, **kwargs
            Its arguments: they must follow from the experiment's own and the key.

        Returns
        -------
        dict of str to ndarray
            What ``f`` returned, as arrays. With a folder they are stored before anything else happens.

        Raises
        ------
        DataError
            If the key is taken or not allowed, or ``f`` returns something else.
        """
        return self._parts.get(key, lambda: f(*args, **kwargs))

    def progress(self, items: Iterable[T], label: str = "") -> Iterable[T]:
        """Go through items behind a progress bar, if one was asked for.

        Parameters
        ----------
        items : iterable
            What to go through.
        label : str
            What the bar is called.

        Returns
        -------
        iterable
            The same items.
        """
        bar: Iterable[T] = tqdm(list(items), desc=label or None, disable=not self.show_progress)
        return bar


class Measure(Protocol):
    """How the function of an experiment is called."""

    def __call__(
        self,
        trials: int | None = None,
        seed: int = 0,
        device: str | None = None,
        progress: bool = False,
        folder: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Record: ...


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """An entry of ``EXPERIMENTS``; calling it runs the experiment and returns its :class:`Record`."""

    name: str
    """Name in Python and on the command line."""
    about: str
    """What it measures, a phrase."""
    source: str
    """Figure or table that it repeats."""
    trials: int
    """Number of trials as published; 1 for a single run."""
    test_trials: int
    """Number of trials under SVMLIB_SCALE=test."""
    cost: str
    """How long it takes."""
    body: Callable[..., Mapping[str, Any]]
    """Its author's function."""

    def __call__(
        self,
        trials: int | None = None,
        seed: int = 0,
        device: str | None = None,
        progress: bool = False,
        folder: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Record:
        """Run the experiment.

        Parameters
        ----------
        trials : int, optional
            Number of trials; as published by default, fewer under SVMLIB_SCALE=test.
        seed : int
            Seed of the first instance.
        device : str, optional
            None or "cpu", "cuda", "auto"; see :func:`svmlib.arrays.resolve_device`.
        progress : bool
            Whether to show progress bars.
        folder : path_like, optional
            Where to store finished parts, from which an interrupted run goes on, and then the record.
        **options
            The experiment's own arguments.

        Returns
        -------
        Record
            What was measured.
        """
        count = self._count(trials)
        seed = check_integer(seed, "seed", 0)
        where = resolve_device(device)
        if (device or os.environ.get("SVMLIB_DEVICE")) == "auto":
            where = "auto"  # each training decides, by the number of its instances
        options = self._defaults() | self._known(options)
        stored = {key: plain(value, key) for key, value in options.items()}
        mark = {"experiment": self.name, "trials": count, "seed": seed, "device": where, "options": stored}
        parts = Parts()
        if folder is not None:
            parts = Parts(writable(folder) / f"{self.name}.parts", fingerprint(mark))
        task = Task(count, seed, where, progress)
        task._parts = parts
        started = time.perf_counter()
        try:
            arrays = checked_arrays(self.body(task, **options), self.name)
            seconds = time.perf_counter() - started + parts.seconds
            record = Record(self.name, arrays, count, seed, where, stored, round(seconds, 6), versions())
            if folder is not None:
                record.save(folder)
        except KeyboardInterrupt as exc:
            raise Interrupted(self.name, parts) from exc
        parts.remove()
        return record

    def _count(self, asked: int | None) -> int:
        if asked is None:
            return trials(self.trials, self.test_trials)
        count = check_integer(asked, "trials")
        if self.trials == 1 != count:
            raise DataError(f"{self.name} is a single run: trials can only be 1, got {count}.")
        return count

    def _defaults(self) -> dict[str, Any]:
        parameters = list(inspect.signature(self.body).parameters.values())[1:]
        return {p.name: p.default for p in parameters}

    def _known(self, options: dict[str, Any]) -> dict[str, Any]:
        known = self._defaults()
        for key in options:
            if key not in known:
                close = difflib.get_close_matches(key, [*known, *STANDARD], n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{self.name} has no argument {key!r}.{hint}")
        return options


def experiment(
    name: str, *, about: str, source: str, trials: int, cost: str, test_trials: int | None = None
) -> Callable[[Callable[..., Mapping[str, Any]]], Measure]:
    """Make an experiment of a function ``f(task, *, options)`` that returns a dict of arrays.

    Parameters
    ----------
    name : str
        Name in Python and on the command line.
    about : str
        What it measures, a phrase.
    source : str
        Figure or table that it repeats.
    trials : int
        Number of trials as published; 1 for an experiment that is a single run.
    cost : str
        How long that takes.
    test_trials : int, optional
        Number of trials under SVMLIB_SCALE=test; at most 20 by default.

    Returns
    -------
    callable
        Decorator. The function it returns takes trials, seed, device, progress and folder, and the
        options, and returns a :class:`Record`. Its docstring is that of ``f``, where ``task`` stands for
        the common arguments.

    Raises
    ------
    DataError
        If the name is taken, or the function has another signature.
    """
    count = check_integer(trials, "trials")
    few = min(count, 20) if test_trials is None else check_integer(test_trials, "test_trials")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DataError(f"An experiment's name must be made of a-z, 0-9 and _, got {name!r}.")

    def register(f: Callable[..., Mapping[str, Any]]) -> Measure:
        _check_signature(name, f)
        old = EXPERIMENTS.get(name)
        # The same function again is its module being reloaded, as %autoreload does.
        if old is not None and _origin(old.body) != _origin(f):
            raise DataError(f"Two experiments are called {name!r}: {_origin(old.body)} and {_origin(f)}.")
        entry = EXPERIMENTS[name] = Experiment(name, about, source, count, few, cost, f)

        @functools.wraps(f, assigned=("__module__", "__name__", "__qualname__"))
        def measure(
            trials: int | None = None,
            seed: int = 0,
            device: str | None = None,
            progress: bool = False,
            folder: str | os.PathLike[str] | None = None,
            **options: Any,
        ) -> Record:
            return entry(trials, seed, device, progress, folder, **options)

        measure.__signature__ = _documentation.signature(measure, f)  # type: ignore[attr-defined]
        measure.__doc__ = _documentation.docstring(f, about, source, count)
        return measure

    return register


def _origin(f: Callable[..., Any]) -> str:
    return f"{f.__module__}.{getattr(f, '__qualname__', '')}"


def _check_signature(name: str, f: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(f).parameters.values())
    options = parameters[1:]
    if (
        not parameters
        or parameters[0].name != "task"
        or parameters[0].kind is not parameters[0].POSITIONAL_OR_KEYWORD
        or any(p.kind is not p.KEYWORD_ONLY or p.default is p.empty for p in options)
    ):
        raise DataError(f"{name} must be a function (task, *, option=default, ...).")
    if taken := [p.name for p in options if p.name in STANDARD]:
        raise DataError(
            f"{name} has an option {taken[0]!r}, which every experiment has: use task.{taken[0]}."
        )
