"""The fair share: use that fades, and what it says about a project's turn."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frenzy_scheduler.core.admission import Holding
from frenzy_scheduler.core.shares import Usage, account, standings

DAY_S = 86_400.0
DAY_MS = 86_400_000
EMPTY = Usage(at_ms=0)


def used(usage, project, kind="t4"):
    return usage.device_s.get(project, {}).get(kind, 0.0)


def test_use_adds_up_and_fades_by_half():
    busy = account(EMPTY, [Holding("p", "t4", 2)], 3_600_000, 1000 * DAY_S)
    assert used(busy, "p") == pytest.approx(2 * 3600, rel=1e-3)
    later = account(busy, [], 3_600_000 + DAY_MS, DAY_S)
    assert used(later, "p") == pytest.approx(used(busy, "p") / 2)


def test_what_is_always_held_counts_the_whole_part_in_the_end():
    usage = EMPTY
    for day in range(1, 40):
        usage = account(usage, [Holding("p", "t4", 1)], day * DAY_MS, DAY_S)
    assert used(usage, "p") == pytest.approx(DAY_S / math.log(2))


@given(st.integers(1, 20), st.lists(st.integers(1, 10**8), min_size=1, max_size=6))
def test_looking_often_or_seldom_comes_to_the_same(count, gaps):
    often, at_ms = EMPTY, 0
    for gap in gaps:
        at_ms += gap
        often = account(often, [Holding("p", "t4", count)], at_ms, DAY_S)
    once = account(EMPTY, [Holding("p", "t4", count)], at_ms, DAY_S)
    assert used(often, "p") == pytest.approx(used(once, "p"), abs=len(gaps))


def test_little_is_forgotten_and_a_clock_that_went_back_changes_nothing():
    usage = Usage(at_ms=DAY_MS, device_s={"p": {"t4": 0.5}, "q": {"t4": 100.0}})
    back = account(usage, [Holding("q", "t4", 5)], 0, DAY_S)
    assert back == Usage(at_ms=0, device_s={"q": {"t4": 100.0}})


def shares(use, *, weights=None, capacity=None):
    """Return the standings of projects that have had these parts of ten devices of a kind."""
    whole = 10 * DAY_S / math.log(2)
    usage = Usage(
        at_ms=0,
        device_s={p: {kind: part * whole for kind, part in k.items()} for p, k in use.items()},
    )
    return standings(usage, list(use), weights or {}, capacity or {"t4": 10, "a100": 10}, DAY_S)


def test_equal_use_is_fair_and_so_is_use_by_weight():
    assert shares({"p": {"t4": 0.4}, "q": {"t4": 0.4}}) == {"p": 1.0, "q": 1.0}
    by_weight = shares({"p": {"t4": 0.6}, "q": {"t4": 0.2}}, weights={"p": 3.0})
    assert by_weight == pytest.approx({"p": 1.0, "q": 1.0})


def test_who_had_more_stands_lower_within_bounds():
    found = shares({"p": {"t4": 0.6}, "q": {}})
    assert found == pytest.approx({"p": 2**-0.3, "q": 2**0.3})
    extreme = shares({"p": {"t4": 1.0}, "q": {}, "r": {}, "s": {}})
    assert extreme["p"] == pytest.approx(2**-0.5)


def test_a_project_counts_by_the_kind_it_had_most_of():
    found = shares({"p": {"t4": 0.1, "a100": 0.5}, "q": {"t4": 0.5}})
    assert found == pytest.approx({"p": 1.0, "q": 1.0})


def test_kinds_that_are_gone_do_not_count_and_one_project_alone_is_fair():
    assert shares({"p": {"h100": 0.9}, "q": {}}) == {"p": 1.0, "q": 1.0}
    assert shares({"p": {"t4": 0.9}}) == {"p": 1.0}
