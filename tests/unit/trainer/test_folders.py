"""A published folder is complete, or absent, or still the former one."""

from pathlib import Path

import pytest

from frenzy_trainer.folders import clear_leftovers, publish


def make(path: Path, content: str) -> Path:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_text(content)
    return path


def test_publishes_and_replaces(tmp_path: Path) -> None:
    final = tmp_path / "step-1"
    for content in ("old", "new"):
        publish(make(tmp_path / ".tmp-1-1", content), final)
        assert (final / "inner" / "file").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_failing_disk_leaves_the_former_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = make(tmp_path / "step-1", "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        publish(make(tmp_path / ".tmp-1-1", "new"), final)
    assert (final / "inner" / "file").read_text() == "old"


def test_only_what_earlier_attempts_left_is_cleared(tmp_path: Path) -> None:
    for name in (".tmp-1-40", ".tmp-2-model", ".tmp-3-40", "step-40", ".tmp-other"):
        (tmp_path / name).mkdir()
    clear_leftovers(tmp_path, attempt=3)
    assert {path.name for path in tmp_path.iterdir()} == {".tmp-3-40", "step-40", ".tmp-other"}
