"""Plans for jobs that may run on some nodes only."""

from dataclasses import replace

from tests.support.scheduling import cluster, device, node

from frenzy_marp.core.planner import plan_job
from frenzy_marp.core.present import Present
from frenzy_shared.domain.cluster import NodeState
from frenzy_shared.domain.eligibility import ANYWHERE, NodePins, eligible_nodes
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

GIB = 1024**3
SPEC = {"model": "gpt2", "data": "node:/x", "global_batch_size": 8}


def labelled(name, *devices, state=NodeState.UP, **labels):
    return replace(node(name, *devices, state=state), labels=tuple(sorted(labels.items())))


SMALL = labelled("a", device("g0", "T4", memory_bytes=16 * GIB), zone="1")
LARGE = labelled(
    "b", *(device(f"g{n}", "A100 SXM4 40GB", memory_bytes=40 * GIB) for n in range(4)), zone="2"
)
NODES = (SMALL, LARGE)


def plans(**resources):
    spec = parse_spec({**SPEC, "resources": resources})
    present, pins = Present.of(NODES), spec.resources.node_pins
    return present.told(plan_job(training_setup(spec), present.within(pins)), pins)


def test_without_pins_everything_is_as_it_was():
    spec = parse_spec(SPEC)
    present = Present.of(NODES)
    assert spec.resources.node_pins == ANYWHERE
    made = plan_job(training_setup(spec), present.kinds)
    assert present.told(made, ANYWHERE) is made
    assert eligible_nodes(ANYWHERE, NODES) is None


def test_only_the_pinned_nodes_kinds_are_planned_for():
    found = plans(nodes=["a"])
    assert {plan.kind for plan in found.plans} == {"T4"}
    assert found.kinds_digest == Present.of(NODES).digest
    left_out = found.refused[-1]
    assert (left_out.kind, left_out.pin) == ("A100 SXM4 40GB", "resources.nodes")


def test_exclusions_and_labels_narrow_too():
    assert {plan.kind for plan in plans(exclude_nodes=["a"]).plans} == {"A100 SXM4 40GB"}
    assert {plan.kind for plan in plans(node_labels={"zone": "1"}).plans} == {"T4"}
    assert {plan.kind for plan in plans(exclude_kinds=["T4"]).plans} == {"A100 SXM4 40GB"}
    refused = next(one for one in plans(exclude_kinds=["T4"]).refused if one.kind == "T4")
    assert refused.pin == "resources.exclude_kinds"


def test_a_pin_that_leaves_nothing_says_which_nodes_there_are():
    found = plans(nodes=["z"], node_labels={"zone": "1"})
    assert not found.feasible
    assert found.message == (
        "no node with devices is allowed by resources.nodes, resources.node_labels; nodes: a, b"
    )


def test_eligible_nodes_are_those_that_all_pins_allow():
    pins = NodePins(exclude=("a",), labels=(("zone", "2"),))
    assert eligible_nodes(pins, cluster(NODES).nodes) == {"b"}
    assert eligible_nodes(NodePins(nodes=("a",), exclude=("a",)), NODES) == frozenset()
