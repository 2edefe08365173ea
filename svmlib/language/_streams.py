"""What streams of tokens must look like, and where a window has something to predict from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from svmlib.arrays import IntArray
from svmlib.errors import DataError

from .models import ScanLayer


def first_position(model: nn.Module) -> int:
    """First position of a window that has something to read: a :class:`ScanLayer` does not read the query."""
    return int(isinstance(getattr(model, "module", model), ScanLayer))


def stream_of(model: nn.Module, ids: ArrayLike, name: str, least: int) -> IntArray:
    """Check a stream of tokens: whole numbers of the model's vocabulary, at least so many."""
    stream = np.asarray(ids)
    if stream.ndim != 1 or not np.issubdtype(stream.dtype, np.integer):
        raise DataError(
            f"{name} must be a stream of whole numbers, got {stream.dtype} of shape {stream.shape}."
        )
    if len(stream) < least:
        raise DataError(
            f"{name} has {len(stream)} tokens, but at least {least} are needed: the corpus is too short."
        )
    vocabulary = getattr(getattr(model, "module", model), "V", None)
    # a memory-mapped stream is scanned once, block by block
    if vocabulary is not None and (int(stream.min()) < 0 or int(stream.max()) >= vocabulary):
        raise DataError(
            f"{name} must hold tokens 0..{vocabulary - 1} of the model's vocabulary, "
            f"got {stream.min()}..{stream.max()}. "
            "Encode the text with the vocabulary of this model; unknown words are 0."
        )
    return stream
