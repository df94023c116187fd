"""Text in, packed sequences out; bad data is named together with the remedy."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frenzy_trainer.data import Dataset, load_dataset
from frenzy_trainer.errors import DataError


def load(data: Path, **options: Any) -> Dataset:
    return load_dataset(
        data, **{"tokenizer": None, "vocabulary": 256, "sequence_length": 4, "seed": 0, **options}
    )


def text_of(dataset: Dataset) -> bytes:
    return dataset.tokens.astype(np.uint8).tobytes()


def test_a_file_becomes_bytes_with_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("grüße")
    assert text_of(load(tmp_path / "a.txt")) == "grüße".encode() + b"\0"


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "b" / "z.txt").write_text("third")
    (tmp_path / "b" / "a.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "empty.txt").touch()
    (tmp_path / ".hidden").write_bytes(b"\xff")
    (tmp_path / "__pycache__" / "x.pyc").write_bytes(b"\xff")
    assert text_of(load(tmp_path)) == b"first\0second\0third\0"


def test_json_lines_are_documents(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        "\n".join(json.dumps({"text": text, "id": 1}) for text in ("one", "two")) + "\n\n"
    )
    assert text_of(load(file)) == b"one\0two\0"


def test_a_batch_holds_whole_sequences_of_the_right_positions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aaaabbbbccccdd")
    dataset = load(tmp_path)
    assert dataset.num_sequences == 3, "what is left over is dropped"
    batch = dataset.batch(range(3))
    assert batch.shape == (3, 4)
    assert batch.dtype == np.int64
    assert sorted(bytes(row.astype(np.uint8)) for row in batch) == [b"aaaa", b"bbbb", b"cccc"]
    assert (dataset.batch(range(1, 2)) == batch[1:2]).all()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"ok \xff\xfe", r"is not UTF-8 text \(byte 3\)"),
        (b"ab", "has 3 tokens, fewer than one sequence of 4"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "bad.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=complaint) as caught:
        load(file)
    assert str(file) in caught.value.message
    assert caught.value.suggestions


@pytest.mark.parametrize("call", ["scandir", "stat"])
def test_an_entry_that_cannot_be_looked_at_is_named(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir() if call == "scandir" else closed.touch()
    (tmp_path / "a.txt").write_text("some text")
    original = getattr(os, call)

    def refusing(path: Any, *args: Any, **options: Any) -> Any:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return original(path, *args, **options)

    monkeypatch.setattr(os, call, refusing)  # permissions do not hold for root
    with pytest.raises(DataError, match="closed: cannot be read: Permission denied"):
        load(tmp_path)


@pytest.mark.parametrize("line", ["not json", '{"body": "x"}', "[1]", '{"text": 3}'])
def test_bad_json_lines_are_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(DataError, match="line 2"):
        load(file)


def test_missing_data_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist on this node"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is empty"):
        load(tmp_path)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    # root may read everything: a link to itself is unreadable for everybody
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(DataError, match="loop.txt"):
        load(tmp_path / "loop.txt")


def test_the_vocabulary_must_cover_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text enough")
    with pytest.raises(DataError, match=r"model.vocab_size is 255, but bytes, .* needs 256"):
        load(tmp_path, vocabulary=255)


def test_a_supplied_tokenizer_is_used(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2, "</s>": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("a b b zebra a")
    for tokenizer in (tmp_path, tmp_path / "tokenizer.json"):
        dataset = load(tmp_path / "text.txt", tokenizer=tokenizer)
        assert dataset.tokens.tolist() == [1, 2, 2, 0, 1, 3]
    with pytest.raises(DataError, match="the tokenizer needs 4"):
        load(tmp_path / "text.txt", tokenizer=tmp_path, vocabulary=3)
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path / "text.txt", tokenizer=tmp_path / "text.txt")
