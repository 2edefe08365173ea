"""Build the book: execute the chapters, make the site, publish it only when all went well.

    python tools/build.py                                   the whole book, into _build/html
    SVMLIB_SCALE=test python tools/build.py                 fewer trials, into _build/test/html
    python tools/build.py --chapter implicit_bias/descent   one chapter executed, warnings shown

Sphinx works in a folder of its own; its result replaces the published site only
after a build with no warning, so a failed or interrupted build leaves the last
good site as it was.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

BUILD = ROOT / "_build"
KEEP_CACHES = 4


def inputs_digest(library: str, prose: bool = True) -> str:
    """A fingerprint of all that the site depends on; without `prose` only the names of the pages count."""
    h = hashlib.sha256(library.encode())
    files = [p for p in (ROOT / "book").rglob("*") if p.is_file() and p.suffix != ".pyc"]
    files += [ROOT / name for name in ("_config.yml", "_toc.yml", "CITATION.cff")]
    files += (ROOT / "tools").glob("*.py")
    for path in sorted(p for p in files if p.exists()):
        h.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        if prose or path.suffix != ".md":
            h.update(path.read_bytes() + b"\0")
    return h.hexdigest()


def publish(work: Path, site: Path) -> None:
    """Swap the new site in by two renames."""
    fresh, old = site.with_name(site.name + ".new"), site.with_name(site.name + ".old")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(work, fresh, ignore=shutil.ignore_patterns(".buildinfo*", "reports"))
    shutil.rmtree(old, ignore_errors=True)
    if site.exists():
        site.rename(old)
    fresh.rename(site)
    shutil.rmtree(old, ignore_errors=True)


def recover(site: Path) -> None:
    """Undo a swap that was cut between its two renames."""
    old = site.with_name(site.name + ".old")
    if old.exists() and not site.exists():
        old.rename(site)


def failed_cell(page: str, log: str) -> str:
    """Say which cell of which chapter failed, from the report MyST-NB leaves."""
    source = ROOT / f"{page}.md"
    ruler = "-" * 18
    parts = log.split(ruler)
    code = parts[1].strip("\n") if len(parts) > 2 else ""
    cells = re.findall(r"^`{3,}\{code-cell\}[^\n]*\n(.*?)^`{3,}\s*$", source.read_text("utf-8"), re.S | re.M)
    first = next((line for line in code.splitlines() if line.strip()), "")
    number = next((i for i, cell in enumerate(cells, 1) if code and code.strip() in cell), 0)
    number = number or next((i for i, cell in enumerate(cells, 1) if first and first in cell), 0)
    shown = "\n".join("    | " + line for line in code.splitlines()[:6])
    more = "\n    | ..." if len(code.splitlines()) > 6 else ""
    error = re.sub(r"\x1b\[[0-9;]*m", "", log).strip().splitlines()
    where = f"code cell {number} of {len(cells)}" if number else "a code cell"
    last = error[-1] if error else "no message"
    return f"{source.relative_to(ROOT)}, {where}, failed:\n{shown}{more}\n    {last}"


def prune_caches(home: Path) -> None:
    caches = sorted((p for p in home.glob("*") if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in caches[KEEP_CACHES:]:
        shutil.rmtree(old, ignore_errors=True)


def run(command: list[str]) -> tuple[int, list[str]]:
    """Run a command, show its output, and collect its warnings."""
    warnings: list[str] = []
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "Kernel is running over TCP without encryption" in line:
                continue  # each kernel says so; they listen on this machine alone
            print(line, end="", file=sys.stderr, flush=True)
            text = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
            if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", text):
                warnings.append(text.replace(f"{ROOT}/", ""))
        return process.wait(), warnings
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise


def chapter(name: str) -> str:
    path = Path(name if name.endswith(".md") else name + ".md")
    for base in (ROOT, ROOT / "book", Path.cwd()):
        if (base / path).is_file():
            return (base / path).resolve().relative_to(ROOT).as_posix()
    known = sorted(
        p.relative_to(ROOT / "book").with_suffix("").as_posix() for p in (ROOT / "book").rglob("*.md")
    )
    raise SystemExit(f"no chapter {name!r}; there are: {', '.join(known)}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument(
        "--chapter", help="execute this chapter alone and show its warnings, e.g. foundations/selector"
    )
    parser.add_argument("--force", action="store_true", help="build even when nothing has changed")
    args = parser.parse_args()

    from svmbook import execution

    scale = execution.scale()
    only = chapter(args.chapter) if args.chapter else ""
    slug = only.removesuffix(".md").replace("/", "-")
    work = BUILD / "work" / (f"{scale}-{slug}" if only else scale)
    site = BUILD / "html" if scale == "full" else BUILD / "test" / "html"
    if only:
        site = BUILD / "chapter" / slug
    work.mkdir(parents=True, exist_ok=True)
    site.parent.mkdir(parents=True, exist_ok=True)
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("another build of the same site is running: waiting for it to end", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)

    recover(site)
    index = site / (only.removesuffix(".md") + ".html" if only else "index.html")
    # what the last build saw, written only when it was without a warning
    stamp, library = work / "inputs", execution.digest()
    seen = stamp.read_text().split() if stamp.exists() else ["", ""]
    want = [inputs_digest(library), inputs_digest(library, prose=False)]
    if not (args.force or only) and index.exists() and seen == want:
        print(f"nothing has changed since the last build (--force builds anyway)\nThe book is at {index}")
        return 0

    start = time.monotonic()
    stamp.unlink(missing_ok=True)  # a build that fails or is stopped starts afresh the next time
    out = work / "_build" / "html"
    cache = work / "cache" if only else BUILD / ".jupyter_cache"
    os.environ["SVMBOOK_CACHE"] = str(cache)
    if only:
        os.environ["SVMBOOK_ONLY"] = only
    else:
        run([sys.executable, str(ROOT / "tools" / "execute.py")])
    fresh = bool(args.force or only or seen[1] != want[1])
    flags = ["--strict"] * (not only) + ["--fresh"] * fresh
    shutil.rmtree(out if fresh else out / "reports", ignore_errors=True)
    code, warnings = run([sys.executable, str(ROOT / "tools" / "run_sphinx.py"), str(out), *flags])
    prune_caches(cache)

    reports = sorted((out / "reports").rglob("*.err.log"))
    problems = [
        failed_cell(p.relative_to(out / "reports").as_posix()[:-8], p.read_text("utf-8")) for p in reports
    ]
    seconds = time.monotonic() - start
    if only:
        page = only.removesuffix(".md")
        mine = [w for w in warnings if page in w and "Executing notebook failed" not in w]
        problems += [w for w in mine if "Notebook exception traceback" not in w]
        code = 1 if problems else code
    elif code:
        problems += [
            w for w in warnings if "Notebook exception" not in w and "Executing notebook failed" not in w
        ]
    if not code or (only and out.exists()):
        publish(out, site)
    if not code and not only:
        stamp.write_text(" ".join(want))
    if code or problems:
        print(f"\n{'=' * 72}\nThe build failed after {seconds:.0f} s.", file=sys.stderr)
        print("\n".join(f"\n* {p}" for p in problems) or "See the messages above.", file=sys.stderr)
        if site.exists():
            kept = "This chapter" if only else "The last good site, untouched,"
            print(f"\n{kept} is at {index}", file=sys.stderr)
        return 1
    print(f"\nBuilt in {seconds:.0f} s. The book is at {index}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit("\ninterrupted: the published site is as it was before") from None
