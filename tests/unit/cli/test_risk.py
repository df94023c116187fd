"""What people see of a plan's risk, its provenance and what it takes beside its GPUs."""

from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.plans import resource_plan

from frenzy.cli import show
from frenzy_shared.domain.plan import HostEstimate, MemoryTerm, PlanSet
from frenzy_shared.units import GIB

HOST = HostEstimate(ram_bytes=4 * GIB, disk_bytes=16 * GIB)


def shown(renderable):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def learned(runs, name="p1"):
    plan = resource_plan(name, expected=4 * GIB, oom_probability=0.0123, host=HOST)
    terms = (*plan.memory.terms, MemoryTerm(name="learned from finished runs", size_bytes=-GIB))
    return replace(plan, memory=replace(plan.memory, terms=terms, mode="learned", runs=runs))


def test_a_plan_says_what_it_risks_and_where_it_knows_that_from():
    text = shown(show.plan_block(learned(7), 8 * GIB))
    assert "1.2 % to run out of memory" in text
    assert "learned from 7 runs" in text
    assert "learned from finished runs -1.00 GiB" in text
    assert "4.00 GiB of RAM per rank, 16.0 GiB of disk" in text
    assert "learned from 1 run)" in shown(show.plan_block(learned(1), None))


def test_plans_of_an_older_server_say_nothing_of_it():
    text = shown(show.plan_block(resource_plan(), None))
    assert "risk" not in text
    assert "RAM" not in text


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.0, "< 0.1 %"), (0.004, "0.4 %"), (0.5, "50 %"), (0.9999, "> 99.9 %")],
)
def test_chances_are_no_more_exact_than_they_can_be(probability, text):
    assert show.chance(probability) == text


def test_wide_compares_the_risks_of_all_plans():
    found = PlanSet(plans=(learned(7), learned(7, "p2")), refused=(), kinds_digest="x")
    assert "P(OOM)" in shown(show.plans(found, {}, limit=None, policy=""))
    assert "P(OOM)" not in shown(show.plans(found, {}, policy=""))
