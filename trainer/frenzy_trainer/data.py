"""Packed sequences of a job's text, handed out by position in the run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from frenzy_trainer.corpus import read_documents
from frenzy_trainer.errors import DataError
from frenzy_trainer.sampling import SampleOrder
from frenzy_trainer.tokens import Tokens, open_tokenizer


@dataclass(frozen=True, slots=True)
class Dataset:
    """All tokens of a job cut into sequences of ``length``; the rest at the end is dropped.

    The tokens are host memory: numpy arrays, which no device accounts for.
    """

    tokens: Tokens
    length: int
    order: SampleOrder

    @property
    def num_sequences(self) -> int:
        """Return how many sequences one epoch has."""
        return self.order.count

    def batch(self, positions: range) -> npt.NDArray[np.int64]:
        """Return the sequences at ``positions`` of the run, one per row."""
        starts = [self.order.sample(position) * self.length for position in positions]
        rows = [self.tokens[start : start + self.length] for start in starts]
        return np.stack(rows).astype(np.int64)


def load_dataset(
    data: Path, *, tokenizer: Path | None, vocabulary: int, sequence_length: int, seed: int
) -> Dataset:
    """Read and tokenize everything under ``data``.

    Raises:
        DataError: the data or tokenizer is unusable, too short, or too rich for the model.
    """
    encoder = open_tokenizer(tokenizer)
    if encoder.vocabulary > vocabulary:
        name = "the tokenizer" if tokenizer else "bytes, the default tokenizer,"
        raise DataError(
            f"model.vocab_size is {vocabulary}, but {name} needs {encoder.vocabulary}",
            suggestions=[f"use a model with vocab_size {encoder.vocabulary} or more"],
        )
    tokens = encoder.encode(read_documents(data))
    count = len(tokens) // sequence_length
    if count == 0:
        raise DataError(
            f"data {data}: has {len(tokens)} tokens, fewer than one sequence of {sequence_length}",
            suggestions=["give more text, or a smaller sequence_length"],
        )
    return Dataset(tokens, sequence_length, SampleOrder(seed, count))
