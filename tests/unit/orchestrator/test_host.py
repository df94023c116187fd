"""The memory that a machine has for ranks."""

import pytest

from frenzy_orchestrator.adapters.host import host_memory_bytes


@pytest.fixture
def files(tmp_path):
    def write(total, limit):
        for name, text in (("total", total), ("limit", limit)):
            if text is not None:
                (tmp_path / name).write_text(text)
        return tmp_path / "total", tmp_path / "limit"

    return write


@pytest.mark.parametrize(
    ("total", "limit", "expected"),
    [
        ("MemTotal:       16384 kB\nMemFree: 5 kB\n", None, 16 * 2**20),
        ("MemTotal:       16384 kB\n", "max\n", 16 * 2**20),
        ("MemTotal:       16384 kB\n", "1048576\n", 2**20),
        (None, "1048576\n", 2**20),
        (None, None, 0),
        ("nothing\n", None, 0),
    ],
)
def test_the_smaller_of_machine_and_container_counts(files, total, limit, expected):
    assert host_memory_bytes(*files(total, limit)) == expected


def test_this_machine_has_some():
    assert host_memory_bytes() > 2**28
