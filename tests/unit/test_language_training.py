"""Training: it learns, and a run that was broken off ends with the numbers of one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from svmlib.errors import DataError, SolverError
from svmlib.language import LanguageRun, ScanLayer, Training, Transformer, train_language

SETTINGS = Training(rate=0.5, steps=30, batch=4, length=10, clip=1.0, momentum=0.5)


def stream(size: int = 600) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(0, 4, size) * 3 + np.arange(size) % 3) % 12


def model(seed: int = 0, dropout: float = 0.3) -> Transformer:
    return Transformer(12, layers=2, width=8, hidden=8, dropout=dropout, seed=seed)


def train(**changes) -> LanguageRun:
    arguments = {"valid": stream(101), "probes": stream(40).reshape(4, 10), "record": 6} | changes
    arguments = {"observe": lambda m: m.decoder.bias} | arguments
    return train_language(arguments.pop("model", model()), stream(), SETTINGS, **arguments)


def same(one: LanguageRun, other: LanguageRun) -> None:
    for name in ("steps", "loss", "valid"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for a, b in zip(one.attention, other.attention, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.observed, other.observed)
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


class Stopped(Exception):
    pass


class StopsAt(Transformer):
    """Raises in the middle of a step, as Ctrl-C would."""

    def __init__(self, calls: int) -> None:
        super().__init__(12, layers=2, width=8, hidden=8, dropout=0.3)
        self.left = calls

    def forward(self, tokens):
        self.left -= self.training
        if not self.left:
            raise Stopped
        return super().forward(tokens)


def test_what_can_be_learnt_is_learnt() -> None:
    # the class of a token modulo three follows from the one before: log 4 nats remain
    settings = Training(rate=0.5, steps=150, batch=8, length=10)
    run = train_language(Transformer(12, width=16, hidden=16), stream(), settings, valid=stream(400))
    assert run.valid[0] > 2.3 > 1.55 > run.valid[-1] > np.log(4) - 0.1
    assert run.loss[-1] == pytest.approx(run.valid[-1], abs=0.1)
    assert np.isnan(run.loss[0]) and run.attention == () and run.observed is None


def test_records_have_their_shapes() -> None:
    run = train()
    assert run.steps[0] == 0 and run.steps[-1] == 30
    r = len(run.steps)
    assert [a.shape for a in run.attention] == [(r, 4, 1, 10, 10)] * 2
    assert all(a.dtype == np.float64 for a in run.attention)
    assert run.loss.shape == run.valid.shape == (r,)
    assert run.observed.shape == (r, 12)
    np.testing.assert_array_equal(run.observed[-1], run.model.decoder.bias.detach())


def test_the_validation_stream_is_evaluated_where_it_is_asked_for() -> None:
    run, some = train(record=[0, 10, 20, 30]), train(record=[0, 10, 20, 30], valid_at=[10, 30])
    np.testing.assert_array_equal(some.valid[[1, 3]], run.valid[[1, 3]])
    assert np.isnan(some.valid[[0, 2]]).all()
    with pytest.raises(DataError, match=r"valid_at must hold recorded steps, but \[15\] are not"):
        train(record=[0, 10, 20, 30], valid_at=[10, 15])


def test_a_run_depends_on_its_seeds_alone() -> None:
    state = torch.random.get_rng_state()
    same(train(), train())
    assert torch.equal(state, torch.random.get_rng_state())
    other = train_language(model(), stream(), Training(**{**vars_of(SETTINGS), "seed": 1}), record=6)
    assert other.loss[-1] != train().loss[-1]


def vars_of(settings: Training) -> dict:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


@pytest.mark.parametrize("stop", [2, 8, 14, 29, 30])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_that_was_broken_off_ends_with_the_same_numbers(stop, optimizer, tmp_path: Path) -> None:
    settings = Training(**{**vars_of(SETTINGS), "optimizer": optimizer, "rate": 0.05, "schedule": "cosine"})
    rest = {"valid": stream(101), "probes": stream(40).reshape(4, 10), "record": 6, "every": 7}
    rest["observe"] = lambda m: m.decoder.bias
    whole = train_language(model(), stream(), settings, **rest)
    file = tmp_path / "deep" / "run.pt"
    with pytest.raises(Stopped):
        train_language(StopsAt(stop), stream(), settings, checkpoint=file, **rest)
    assert file.exists() == (stop > 7)
    same(train_language(model(), stream(), settings, checkpoint=file, **rest), whole)
    same(train_language(model(), stream(), settings, checkpoint=file, **rest), whole)  # and when it was done
    assert [f.name for f in file.parent.iterdir()] == ["run.pt"]


KILLED = """
import numpy as np, sys, time
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from test_language_training import SETTINGS, model, stream
from svmlib import language
def slow(step):
    time.sleep(0.05)
    return 0.5
language.Training.rate_at = lambda self, step: slow(step)
language.train_language(model(), stream(), SETTINGS, record=6, probes=stream(40).reshape(4, 10),
                        valid=stream(101), observe=lambda m: m.decoder.bias, checkpoint={file!r}, every=5)
"""


def test_a_killed_process_loses_only_the_steps_since_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    code = KILLED.format(folder=str(Path(__file__).parent), file=str(file))
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"})
    for _ in range(1200):
        if file.exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the process ended before it could be killed"
    saved = torch.load(file, weights_only=True)["state"]["step"]
    assert 0 < saved < 30
    same(train(checkpoint=file), train())


def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    train(checkpoint=file, every=10)
    before = file.read_bytes()
    cases = {
        "weights at the start": {"model": model(1)},
        "probes": {"probes": stream(80).reshape(8, 10)},
        "records": {"record": 3},
    }
    for words, changes in cases.items():
        with pytest.raises(DataError, match=f"belongs to another run: it has .*{words}"):
            train(checkpoint=file, **changes)
    with pytest.raises(DataError, match=r"rate = 0\.5 instead of 0\.7"):
        train_language(
            model(), stream(), Training(**{**vars_of(SETTINGS), "rate": 0.7}), checkpoint=file, record=6
        )
    with pytest.raises(DataError, match="text"):
        train_language(model(), stream(601), SETTINGS, checkpoint=file, record=6)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no checkpoint", "half"])
def test_a_broken_checkpoint_is_named_and_kept(content, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    if content == "half":
        train(checkpoint=file)
        content = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"is broken .* Delete it to begin anew"):
        train(checkpoint=file)
    assert file.read_bytes() == content


def test_a_checkpoint_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        train(checkpoint=tmp_path / "file" / "run.pt", every=5)


def test_divergence_is_reported_with_its_step() -> None:
    with pytest.raises(SolverError, match=r"left the finite numbers at step .* smaller rate"):
        train_language(ScanLayer(12, 4), stream(), Training(rate=1e12, steps=50, batch=2, length=8))


def test_mixed_precision_stays_near() -> None:
    plain = train(model=model(dropout=0.0))
    mixed = train(model=model(dropout=0.0), precision="bf16")
    np.testing.assert_allclose(mixed.valid, plain.valid, rtol=0.02)
    assert not np.array_equal(mixed.loss[1:], plain.loss[1:])


TEAM = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, torch
torch.set_num_threads(1)
from test_language_training import model, train
run = train(model=model(dropout=0.0), device="cpu", checkpoint={file!r}, every=10)
from accelerate import PartialState
if PartialState().is_main_process:
    assert PartialState().num_processes == 2
    np.savez({out!r}, loss=run.loss, valid=run.valid, last=run.attention[0])
"""


def test_two_processes_of_a_launcher_train_as_one(tmp_path: Path) -> None:
    out = tmp_path / "run.npz"
    script = tmp_path / "script.py"
    folder = str(Path(__file__).parent)
    script.write_text(TEAM.format(folder=folder, file=str(tmp_path / "run.pt"), out=str(out)))
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    done = subprocess.run(
        [sys.executable, *launch, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    together, alone = np.load(out), train(model=model(dropout=0.0))
    np.testing.assert_allclose(together["loss"], alone.loss, rtol=1e-4)
    np.testing.assert_allclose(together["valid"], alone.valid, rtol=1e-4)
    np.testing.assert_allclose(together["last"], alone.attention[0], atol=1e-4)
