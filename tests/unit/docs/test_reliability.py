"""docs/explanation/reliability.md names every crash point of the code, and only tests that exist."""

import re
from pathlib import Path

from tests.support import points

from frenzy_shared.messages.v1 import EvidenceKind

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
# Evidence that the trainer's progress makes, not a step of an attempt's life.
NOT_TOLD = {EvidenceKind.PROGRESSED, EvidenceKind.CHECKPOINTED, EvidenceKind.INVENTORY}


def points_in_code():
    found = set()
    for folder in ("shared", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r'crashpoints\.reach\(\s*f?"([^"]+)"', path.read_text()))
    found.remove("agent.after-{kind}")
    return found | {f"agent.after-{kind}" for kind in set(EvidenceKind) - NOT_TOLD}


def test_every_crash_point_is_documented_and_tested():
    documented = re.findall(r"^\| `([a-z]+\.[a-z-]+)` \|", PAGE, re.MULTILINE)
    assert sorted(documented) == sorted(points_in_code())
    tested = [*points.CONTROL, *points.AGENT, *points.SHIM, *points.CANCEL, *points.REFUSAL]
    tested += points.DISPLACE
    tested += {point for some in points.MOVE for point in some} - {*tested}
    assert sorted(documented) == sorted(tested)


def test_every_test_that_is_named_exists():
    defined = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert named - defined == set()
    files = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert [name for name in files if not (ROOT / name).is_file()] == []
