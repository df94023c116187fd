"""Bundles: the same files give the same bytes; hostile ones give nothing."""

import errno
import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frenzy_shared.blobs import bundle
from frenzy_shared.blobs.digest import digest_of
from frenzy_shared.blobs.limits import EXCLUDED
from frenzy_shared.errors import FrenzyError, InvalidSpec, PayloadTooLarge, StorageFull


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "pkg" / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "pkg" / "ünï code.txt").write_bytes(b"\0\1\2")
    (folder / ("long-" * 30)).write_text("long name")
    for left_out in (".git", "__pycache__", ".venv", "pkg/__pycache__"):
        (folder / left_out).mkdir()
        (folder / left_out / "file").write_text("no")
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_a_folder_comes_back_without_what_is_left_out(work: Path, tmp_path: Path) -> None:
    digest = bundle.pack(work, tmp_path / "b.tar")
    bundle.unpack(tmp_path / "b.tar", tmp_path / "out" / "copy")

    assert digest == digest_of((tmp_path / "b.tar").read_bytes())
    expected = {k: v for k, v in tree(work).items() if not {*k.split("/")} & EXCLUDED}
    assert tree(tmp_path / "out" / "copy") == expected
    assert os.access(tmp_path / "out" / "copy" / "run.sh", os.X_OK)
    assert (tmp_path / "out" / "copy" / "train.py").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["copy"]


def test_the_same_files_give_the_same_bytes(work: Path, tmp_path: Path) -> None:
    first = bundle.pack(work, tmp_path / "1.tar")
    os.utime(work / "train.py", (1, 1))
    (work / "train.py").chmod(0o600)
    copy = tmp_path / "elsewhere"
    bundle.unpack(tmp_path / "1.tar", copy)
    assert bundle.pack(work, tmp_path / "2.tar") == first
    assert bundle.pack(copy, tmp_path / "3.tar") == first
    (work / "train.py").write_text("print('ho')\n")
    assert bundle.pack(work, tmp_path / "4.tar") != first


def test_a_single_file_is_a_bundle_too(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("data")
    bundle.pack(tmp_path / "text.txt", tmp_path / "b.tar")
    bundle.unpack(tmp_path / "b.tar", tmp_path / "copy")
    assert tree(tmp_path / "copy") == {"text.txt": b"data"}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(
        st.lists(st.text("abcé ~", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join),
        st.binary(max_size=2000),
        min_size=1,
        max_size=8,
    )
)
def test_any_folder_comes_back(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    tmp = tmp_path_factory.mktemp("any")
    written = {}
    for name, content in files.items():
        path = tmp / "in" / name
        if any(parent.is_file() for parent in path.parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written[name] = content
    bundle.pack(tmp / "in", tmp / "b.tar")
    bundle.unpack(tmp / "b.tar", tmp / "out")
    assert {k: v for k, v in tree(tmp / "out").items() if v is not None} == written


# -- refused to pack --------------------------------------------------------------------------


def test_what_cannot_be_packed_is_named(work: Path, tmp_path: Path) -> None:
    for prepare, complaint in (
        (lambda: (work / "link").symlink_to("/etc/passwd"), "link is a link"),
        (lambda: os.mkfifo(work / "pipe"), "pipe is a link or a special file"),
        (lambda: (work / "back\\slash").write_text(""), "Windows"),
        (lambda: (work / "new\nline").write_text(""), "control characters"),
        (lambda: (work / "/".join("d" * 30)).mkdir(parents=True), "too deep"),
    ):
        before = tree(work)
        prepare()
        with pytest.raises(InvalidSpec, match=complaint):
            bundle.pack(work, tmp_path / "b.tar")
        assert not (tmp_path / "b.tar").exists()
        for name in set(os.listdir(work)) - {name.split("/")[0] for name in before}:
            path = work / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def test_nothing_to_pack(tmp_path: Path) -> None:
    (tmp_path / "empty" / "dir").mkdir(parents=True)
    for path, complaint in (
        (tmp_path / "missing", "No such file"),
        (tmp_path / "empty", "no files"),
        (Path("/dev/null"), "neither"),
    ):
        with pytest.raises(InvalidSpec, match=complaint):
            bundle.pack(path, tmp_path / "b.tar")
        assert not (tmp_path / "b.tar").exists()


def test_limits_on_packing(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PayloadTooLarge, match="larger than 10 bytes"):
        bundle.pack(work, tmp_path / "b.tar", max_bytes=10)
    monkeypatch.setattr(bundle, "MAX_ENTRIES", 3)
    with pytest.raises(PayloadTooLarge, match="at most 3"):
        bundle.pack(work, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()


def test_a_full_disk_says_so(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bundle.pack(work, tmp_path / "good.tar")
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(StorageFull):
        bundle.pack(work, tmp_path / "b.tar")
    monkeypatch.setattr(bundle, "_copy", full)
    with pytest.raises(StorageFull):
        bundle.unpack(tmp_path / "good.tar", tmp_path / "out" / "copy")
    assert not (tmp_path / "b.tar").exists()
    assert list((tmp_path / "out").iterdir()) == []


# -- refused to unpack ------------------------------------------------------------------------


def member(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content if info.isreg() else b""


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


GOOD = member("good.txt")


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (member("../out.txt"), "leaves the folder"),
        (member("a/../../out.txt"), "leaves the folder"),
        (member("/etc/passwd"), "leaves the folder"),
        (member("./a"), "leaves the folder"),
        (member("C:\\x"), "Windows"),
        (member("..\\x"), "Windows"),
        (member("C:x"), "Windows"),
        (member("a//b"), "empty part"),
        (member("a\nb"), "control characters"),
        (member("a\x7fb"), "control characters"),
        (member("x" * 256), "too deep or too long"),
        (member("/".join("d" * 21)), "too deep or too long"),
        (member("link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link"),
        (member("link", b"", type=tarfile.LNKTYPE, linkname="good.txt"), "is a link"),
        (member("dev", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "special file"),
        (member("disk", b"", type=tarfile.BLKTYPE), "special file"),
        (member("pipe", b"", type=tarfile.FIFOTYPE), "special file"),
        (member("good.txt"), "twice"),
        (member("GOOD.txt"), "case"),
        (member("good.txt/inside"), "both a file and a folder"),
        (member("good.txt", b"", type=tarfile.DIRTYPE), "twice"),
    ],
)
def test_hostile_entries_are_named_and_nothing_is_written(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], complaint: str
) -> None:
    (tmp_path / "out").mkdir()
    file = archive(tmp_path / "b.tar", GOOD, bad)
    with pytest.raises(InvalidSpec, match=complaint):
        bundle.unpack(file, tmp_path / "out" / "copy")
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(os.listdir(tmp_path)) == ["b.tar", "out"]


def test_modes_are_reduced(tmp_path: Path) -> None:
    file = archive(tmp_path / "b.tar", member("s", mode=0o6777), member("p", mode=0o4600))
    bundle.unpack(file, tmp_path / "copy")
    assert (tmp_path / "copy" / "s").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "copy" / "p").stat().st_mode & 0o7777 == 0o644


def damage_checksum(content: bytes) -> bytes:
    return content[:150] + b"9" + content[151:]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: b"not a tar at all" * 100,
        lambda content: content[:700],
        damage_checksum,
        gzip.compress,
    ],
    ids=["empty", "text", "truncated", "checksum", "gzip"],
)
def test_broken_archives_are_refused(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    file = archive(tmp_path / "b.tar", member("a", b"y" * 5000))
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(InvalidSpec, match="broken"):
        bundle.unpack(file, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_limits_on_unpacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive(tmp_path / "b.tar", member("a", b"y" * 600), member("b", b"y" * 600))
    with pytest.raises(PayloadTooLarge):
        bundle.unpack(file, tmp_path / "copy", max_bytes=1000)
    monkeypatch.setattr(bundle, "MAX_ENTRIES", 1)
    with pytest.raises(PayloadTooLarge):
        bundle.unpack(file, tmp_path / "copy")
    monkeypatch.setattr(bundle, "MAX_ENTRIES", 0)
    with pytest.raises(PayloadTooLarge):
        bundle.unpack(file, tmp_path / "copy", max_bytes=100)
    assert not (tmp_path / "copy").exists()


def test_a_sparse_bomb_is_refused_at_once(tmp_path: Path) -> None:
    info = tarfile.TarInfo("bomb")
    info.pax_headers = {
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": str(10**15),
        "GNU.sparse.name": "x",
    }
    info.size = 1
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(FrenzyError):
        bundle.unpack(tmp_path / "b.tar", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2048), st.integers(0, 9000))
def test_no_damage_gets_past(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    """Whatever the bytes, the answer is a folder or a stated error, and never anything outside."""
    tmp = tmp_path_factory.mktemp("fuzz")
    content = archive(tmp / "b.tar", GOOD, member("a/b", b"z" * 3000)).read_bytes()
    (tmp / "b.tar").write_bytes(content[:at] + junk + content[at + len(junk) :])
    (tmp / "in").mkdir()
    try:
        bundle.unpack(tmp / "b.tar", tmp / "in" / "copy")
    except FrenzyError:
        assert list((tmp / "in").iterdir()) == []
    assert set(os.listdir(tmp)) == {"b.tar", "in"}
