"""Where the steps of training are computed: one device, or several processes that share the batch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from svmlib.arrays import IntArray, resolve_device
from svmlib.errors import DataError

from ._streams import first_position
from .evaluation import evaluate


class Team:
    """The processes of a launcher (``accelerate launch``), or this one alone."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: str | None,
        precision: str | None,
        compiled: bool,
    ) -> None:
        from accelerate import Accelerator  # takes a second to import
        from accelerate.state import AcceleratorState

        if precision not in (None, "bf16", "fp16"):
            raise DataError(f'precision must be None (full), "bf16" or "fp16", got {precision!r}.')
        where = resolve_device(device, 1000)  # a language model is large enough for a GPU
        if precision == "fp16" and where == "cpu":
            raise DataError('precision "fp16" needs a GPU. On the CPU use "bf16", or leave it out.')
        self.skip = first_position(model)
        # accelerate keeps device and precision for the whole process; a notebook trains with several
        AcceleratorState._reset_state(reset_partial_state="LOCAL_RANK" not in os.environ)
        self.accelerator = Accelerator(cpu=where == "cpu", mixed_precision=precision or "no")
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.run = torch.compile(self.model) if compiled else self.model

    @property
    def leads(self) -> bool:
        """Whether this process writes files and bars."""
        return bool(self.accelerator.is_main_process)

    def share(self, windows: IntArray) -> Tensor:
        """Cut this process's part out of a batch."""
        a = self.accelerator
        if len(windows) % a.num_processes:
            raise DataError(
                f"A batch of {len(windows)} cannot be shared by {a.num_processes} processes equally."
            )
        return torch.as_tensor(np.split(windows, a.num_processes)[a.process_index], device=a.device)

    def step(self, windows: IntArray, rate: float, clip: float | None, seed: int) -> float:
        """Take one step on windows of tokens, with dropout from the seed; return the loss before it."""
        a, tokens = self.accelerator, self.share(windows)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        with torch.random.fork_rng(devices=[a.device] if a.device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed + a.process_index)
            if a.device.type == "cuda":
                torch.cuda.manual_seed(seed + a.process_index)
            with a.autocast():
                logits = self.run(tokens[:, :-1]).logits[:, self.skip :]
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), tokens[:, 1 + self.skip :].flatten()
            )
        self.optimizer.zero_grad()
        a.backward(loss)
        if clip is not None:
            a.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        return float(a.reduce(loss.detach(), "mean"))

    def look(
        self,
        held: IntArray | None,
        windows: IntArray | None,
        length: int,
        observe: Callable[[nn.Module], ArrayLike | Tensor] | None,
    ) -> tuple[float, list[Tensor], list[Tensor]]:
        """Validation loss; attention on the probes, (P, H, T, T) for each layer; what else is observed."""
        plain = self.plain
        valid = math.nan if held is None else evaluate(plain, held, length)
        maps: tuple[Tensor, ...] = ()
        plain.eval()
        with torch.no_grad():
            if windows is not None:
                maps = plain(torch.as_tensor(windows, device=self.accelerator.device)).attention
            seen = [] if observe is None else [torch.as_tensor(observe(plain)).detach().float().cpu().clone()]
        return valid, [m.float().cpu() for m in maps], seen

    @property
    def plain(self) -> nn.Module:
        """The model without what the launcher has put around it."""
        model: nn.Module = self.accelerator.unwrap_model(self.model)
        return model

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to keep of model and optimiser."""
        return {"model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.plain.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
