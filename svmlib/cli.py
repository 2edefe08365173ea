"""Command line: ``svmlib reproduce NAME`` runs an experiment of the papers and stores its numbers."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .errors import SvmlibError

if TYPE_CHECKING:
    from .experiments import Experiment

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="svmlib", description="Experiments of the book.")
    parser.add_argument("--version", action="version", version=f"svmlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    reproduce = commands.add_parser(
        "reproduce",
        help="run an experiment and store its numbers",
        description="Run an experiment and store its numbers. Ctrl-C keeps the parts that are finished: "
        "the same command goes on from them.",
    )
    reproduce.add_argument("name", nargs="?", help="experiment; --list shows the names")
    reproduce.add_argument("--list", action="store_true", help="list the experiments with their cost")
    reproduce.add_argument("--trials", type=int, help="number of random instances (default: as published)")
    reproduce.add_argument("--seed", type=int, default=0, help="seed of the first instance (default 0)")
    reproduce.add_argument("--device", help='"cpu", "cuda" or "auto" (default: SVMLIB_DEVICE, else cpu)')
    reproduce.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        help="folder for NAME.npz and NAME.json (default results)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, those of the process by default.

    Returns
    -------
    int
        0 on success, 2 where the arguments or the data are wrong or nothing can be stored, 130 after an
        interruption (Ctrl-C) and 143 after a request to end (SIGTERM).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    args = _parser().parse_args(words)
    received: list[int] = []
    try:
        with _ending(received), _short_warnings():
            return _reproduce(args)
    except SvmlibError as exc:
        return _complain(str(exc))
    except KeyboardInterrupt as exc:
        print(f"\nsvmlib: {exc or 'interrupted.'}", file=sys.stderr)
        if getattr(exc, "kept", 0):
            print(f"To go on: {shlex.join(['svmlib', *words])}", file=sys.stderr)
        return 128 + (received[0] if received else int(signal.SIGINT))


def _reproduce(args: argparse.Namespace) -> int:
    from .arrays import check_integer  # numpy and torch are loaded only when an experiment is asked for
    from .experiments import EXPERIMENTS

    if args.list:
        print(_table(EXPERIMENTS))
        return 0
    if args.name not in EXPERIMENTS:
        close = difflib.get_close_matches(args.name or "", EXPERIMENTS, n=1)
        asked = "no experiment was named" if args.name is None else f"there is no experiment {args.name!r}"
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return _complain(f"{asked}.{hint} Choose one of: {', '.join(sorted(EXPERIMENTS))}.")
    if args.trials is not None and args.trials < 1:
        return _complain(f"--trials must be at least 1, got {args.trials}.")
    check_integer(args.seed, "--seed", 0)
    started = time.perf_counter()
    run = EXPERIMENTS[args.name]
    record = run(args.trials, args.seed, args.device, progress=True, folder=args.out)
    where = args.out / f"{args.name}.npz"
    print(f"{args.name}: {len(record)} arrays in {where}, {time.perf_counter() - started:.1f} s")
    return 0


def _complain(text: str) -> int:
    print(f"svmlib: {text}", file=sys.stderr)
    return 2


def _table(experiments: Mapping[str, Experiment]) -> str:
    rows = [("NAME", "TRIALS", "COST", "WHAT")]
    rows += [(name, str(e.trials), e.cost, e.about) for name, e in sorted(experiments.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"{name:{widths[0]}}  {trials:>{widths[1]}}  {cost:{widths[2]}}  {about}"
        for name, trials, cost, about in rows
    )


@contextlib.contextmanager
def _ending(received: list[int]) -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: batch systems and containers send it."""

    def stop(number: int, _: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # only the main thread may set it
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Show a warning as one line without a place in the code."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        from tqdm import tqdm

        tqdm.write(f"svmlib: {message}", file=sys.stderr)  # above a progress bar, not behind it

    with warnings.catch_warnings():
        warnings.showwarning = show  # catch_warnings puts the old one back
        yield


if __name__ == "__main__":
    raise SystemExit(main())
