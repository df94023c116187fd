"""Turn documents into token numbers: bytes, or a supplied tokenizer.json."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from frenzy_trainer.errors import DataError

Tokens = npt.NDArray[np.integer[Any]]

_SEPARATORS: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]")


class Tokenizer(Protocol):
    """Encode documents; ``vocabulary`` is one more than the highest token number."""

    @property
    def vocabulary(self) -> int:
        """Return how many token numbers there are."""
        ...

    def encode(self, documents: Iterable[str]) -> Tokens:
        """Return the documents as one run of tokens, a separator after each."""
        ...


@dataclass(frozen=True)
class ByteTokenizer:
    """Tokens are UTF-8 bytes; NUL, which text does not hold, ends a document."""

    vocabulary: int = 256

    def encode(self, documents: Iterable[str]) -> Tokens:
        """Return the documents' bytes."""
        joined = b"".join(part for text in documents for part in (text.encode(), b"\0"))
        return np.frombuffer(joined, dtype=np.uint8)


class FileTokenizer:
    """A tokenizer of the ``tokenizers`` library, from its ``tokenizer.json``."""

    def __init__(self, path: Path) -> None:
        """Load the file, or the ``tokenizer.json`` in a folder.

        Raises:
            DataError: the file is absent or is not a tokenizer.
        """
        from tokenizers import Tokenizer as Backend  # noqa: PLC0415 - byte jobs never need it

        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            self._backend: Any = Backend.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise DataError(
                f"tokenizer {file}: cannot be read: {error}",
                suggestions=["give a tokenizer.json of the tokenizers library, or leave it out"],
            ) from error

    @property
    def vocabulary(self) -> int:
        """Return how many token numbers there are, special tokens included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, documents: Iterable[str]) -> Tokens:
        """Return the documents' tokens, each followed by the end-of-text token if there is one."""
        found = (self._backend.token_to_id(name) for name in _SEPARATORS)
        separator = next(([number] for number in found if number is not None), [])
        runs = (
            encoding.ids + separator for encoding in self._backend.encode_batch(list(documents))
        )
        return np.fromiter((token for run in runs for token in run), dtype=np.uint32)


def open_tokenizer(path: Path | None) -> Tokenizer:
    """Return the tokenizer at ``path``; bytes when there is none."""
    return FileTokenizer(path) if path is not None else ByteTokenizer()
