#!/bin/sh
# Make .venv and install into it what is missing. Usage: tools/setup.sh [dev]
#   PYTHON=...  the interpreter to use (3.11 to 3.13)
#   TORCH=...   the arguments for "pip install" that choose another build of torch;
#               remembered until it is given again
set -eu
cd "$(dirname "$0")/.."
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
say() { printf '%s\n' "$*" >&2; }

if [ -x .venv/bin/python ] && ! .venv/bin/python -c "$fits" 2>/dev/null; then
    say "The Python in .venv is gone or is not 3.11 to 3.13. Remove the folder .venv and try again."
    exit 1
fi

if [ ! -x .venv/bin/python ]; then
    found=
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c "$fits" >/dev/null 2>&1; then found=$candidate; break; fi
    done
    if [ -z "$found" ]; then
        say "This book needs Python 3.11, 3.12 or 3.13."
        for candidate in ${PYTHON:-python3 python}; do
            version=$("$candidate" --version 2>&1) && say "  $candidate is $version" || say "  $candidate does not run"
        done
        say "Install one of those versions, or name one you have: make book PYTHON=/path/to/python3.12"
        exit 1
    fi
    if ! "$found" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        say "$("$found" --version) cannot make virtual environments: its venv module is missing."
        say "On Debian and Ubuntu install the package python3-venv (or python3.12-venv, ...), then try again."
        exit 1
    fi
    say "Making .venv with $("$found" --version)"
    "$found" -m venv .venv || { rm -rf .venv; exit 1; }
fi

wanted=requirements.txt
[ "${1:-}" = dev ] && wanted=requirements-dev.txt
if [ -n "${TORCH:-}" ]; then printf '%s\n' "$TORCH" >.venv/torch; fi
torch=$(cat .venv/torch 2>/dev/null || true)
key=$(cat requirements.txt "$wanted" pyproject.toml tools/setup.sh .venv/torch 2>/dev/null | cksum)
stamp=.venv/installed-${wanted%.txt}
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$key" ]; then
    say "Installing $wanted (the first time takes a minute or more: torch is large)"
    if [ -n "$torch" ]; then
        # shellcheck disable=SC2086  # the words of TORCH are separate arguments
        .venv/bin/python -m pip install --quiet --disable-pip-version-check $torch
        grep -v '^torch==' requirements.txt >.venv/requirements.txt
        grep -v '^-r ' "$wanted" >.venv/extra.txt
        [ "$wanted" = requirements.txt ] && : >.venv/extra.txt
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/requirements.txt -r .venv/extra.txt
    else
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$wanted"
    fi
    mkdir -p .venv/share/jupyter/lab/settings
    cp tools/lab/overrides.json .venv/share/jupyter/lab/settings/overrides.json
    printf '%s\n' "$key" >"$stamp"
fi
