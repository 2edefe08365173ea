"""Command line: ``svmlib reproduce NAME`` runs an experiment of the papers and stores its numbers."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import __version__
from .arrays import check_integer, resolve_device
from .errors import SvmlibError

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="svmlib", description="Experiments of the book.")
    parser.add_argument("--version", action="version", version=f"svmlib {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    reproduce = commands.add_parser("reproduce", help="run an experiment and store its numbers")
    reproduce.add_argument("name", nargs="?", help="experiment; --list shows the names")
    reproduce.add_argument("--list", action="store_true", help="list the experiments")
    reproduce.add_argument("--trials", type=int, help="number of random instances (default: as published)")
    reproduce.add_argument("--seed", type=int, default=0, help="seed of the first instance (default 0)")
    reproduce.add_argument("--device", help='"cpu", "cuda" or "auto" (default: SVMLIB_DEVICE, else cpu)')
    reproduce.add_argument(
        "--out", type=Path, default=Path("results"), help="folder for NAME.npz and NAME.json"
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
        0 on success, 2 where the arguments or the data are wrong, 130 after an interruption.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    from .experiments import EXPERIMENTS  # torch is loaded only when an experiment is asked for

    if args.list:
        for name, (about, _) in EXPERIMENTS.items():
            print(f"{name:24} {about}")
        return 0
    if args.name not in EXPERIMENTS:
        asked = "no experiment was named" if args.name is None else f"there is no experiment {args.name!r}"
        print(f"svmlib: {asked}. Choose one of: {', '.join(EXPERIMENTS)}.", file=sys.stderr)
        return 2
    if args.trials is not None and args.trials < 1:
        print(f"svmlib: --trials must be at least 1, got {args.trials}.", file=sys.stderr)
        return 2
    started = time.perf_counter()
    try:
        check_integer(args.seed, "--seed", 0)
        resolve_device(args.device)
        args.out.mkdir(parents=True, exist_ok=True)
        numbers = EXPERIMENTS[args.name][1](args.trials, args.seed, args.device)
        where = _store(args, numbers, time.perf_counter() - started)
    except OSError as exc:
        print(
            f"svmlib: cannot write to the folder {args.out}: {exc}. Name another one: --out.", file=sys.stderr
        )
        return 2
    except SvmlibError as exc:
        print(f"svmlib: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("svmlib: interrupted; nothing was stored.", file=sys.stderr)
        return 130
    print(f"{args.name}: {len(numbers)} arrays in {where}, {time.perf_counter() - started:.1f} s")
    return 0


def _store(args: argparse.Namespace, numbers: dict[str, np.ndarray], seconds: float) -> Path:
    target: Path = args.out / f"{args.name}.npz"
    partial = target.with_suffix(".partial.npz")
    np.savez_compressed(partial, **{k: np.asarray(v) for k, v in numbers.items()})  # type: ignore[arg-type]
    partial.replace(target)  # a run that is stopped here leaves the last result whole
    provenance = {
        "experiment": args.name,
        "trials": args.trials,
        "seed": args.seed,
        "device": args.device,
        "seconds": round(seconds, 3),
        "svmlib": __version__,
        "numpy": np.__version__,
        "torch": sys.modules["torch"].__version__,
        "python": platform.python_version(),
        "arrays": {k: list(np.shape(v)) for k, v in numbers.items()},
    }
    target.with_suffix(".json").write_text(json.dumps(provenance, indent=1) + "\n", encoding="utf-8")
    return target


if __name__ == "__main__":
    raise SystemExit(main())
