"""The state of a run on disk: whole or not at all, and only for the run that it belongs to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from svmlib.errors import DataError

__all__ = ["Checkpoint"]


class Checkpoint:
    """A file that holds the last saved state of one run.

    Parameters
    ----------
    file : str or Path
        Where it lies.
    run : dict
        What the run was started with; a file of another run is refused.
    """

    def __init__(self, file: str | Path, run: dict[str, Any]) -> None:
        self.file, self.run = Path(file), run

    def load(self) -> dict[str, Any] | None:
        """Read the state, None where there is no file.

        Returns
        -------
        dict or None
            The state that was saved, on the CPU.

        Raises
        ------
        DataError
            If the file is broken, or belongs to another run.
        """
        if not self.file.exists():
            return None
        try:
            # tensors, numbers and strings only: a file from elsewhere cannot run code
            found = torch.load(self.file, map_location="cpu", weights_only=True)
            run, state = dict(found["run"]), dict(found["state"])
        except Exception as error:  # a broken file can raise anything
            raise DataError(
                f"The checkpoint {self.file} is broken ({type(error).__name__}). "
                "Delete it to begin anew, or name another file."
            ) from error
        differ = sorted(k for k in {*run, *self.run} if run.get(k) != self.run.get(k))
        if differ:
            saw = ", ".join(f"{k} = {run.get(k)!r} instead of {self.run.get(k)!r}" for k in differ)
            raise DataError(
                f"The checkpoint {self.file} belongs to another run: it has {saw}. "
                "Name another file, or delete it."
            )
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Write the state; the old one stays until the new one is complete.

        Parameters
        ----------
        state : dict
            What is needed to go on: tensors, numbers, strings, and lists and dicts of them.

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        temporary: str | None = None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.file.parent, prefix=self.file.stem)
            os.close(handle)
            torch.save({"run": self.run, "state": state}, temporary)
            Path(temporary).replace(self.file)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
            raise DataError(
                f"The checkpoint {self.file} cannot be written ({error}). Name a file in another folder."
            ) from error
        finally:
            if temporary is not None:
                with contextlib.suppress(FileNotFoundError):
                    Path(temporary).unlink()
