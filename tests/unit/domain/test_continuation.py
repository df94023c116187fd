"""Which plan goes on from which checkpoint."""

import pytest

from frenzy_shared.domain.continuation import Elasticity, PlanShape, carries, script_carries
from frenzy_shared.domain.plan import Precision


def shape(stage=2, ranks=2, precision=Precision.BF16):
    return PlanShape(zero_stage=stage, ranks=ranks, precision=precision)


@pytest.mark.parametrize(
    ("former", "now", "expected"),
    [
        (shape(1), shape(2, 4), True),
        (shape(2), shape(1, 1), True),
        (shape(3), shape(3, 1), True),
        (shape(0), shape(0), True),
        (shape(0), shape(0, 1), False),
        (shape(0), shape(1), False),
        (shape(2), shape(3), True),
        (shape(3), shape(1, 1), True),
        (shape(3), shape(0), False),
        (shape(), shape(precision=Precision.FP32), False),
    ],
    ids=str,
)
def test_the_built_in_trainer_carries_between_sharded_stages(former, now, expected):
    assert carries(former, now) is expected


@pytest.mark.parametrize(
    ("elasticity", "by_choice", "expected"),
    [
        (Elasticity.FIXED, False, False),
        (Elasticity.BATCH_FROM_PLAN, False, True),
        (Elasticity.BATCH_FROM_PLAN, True, False),
        (Elasticity.ELASTIC, True, True),
    ],
)
def test_a_script_changes_its_ranks_as_it_declared(elasticity, by_choice, expected):
    found = script_carries(shape(ranks=2), shape(ranks=1), elasticity, by_choice=by_choice)
    assert found is expected


@pytest.mark.parametrize("elasticity", Elasticity)
def test_a_script_keeps_stage_and_precision_and_may_always_keep_its_ranks(elasticity):
    assert script_carries(shape(), shape(), elasticity, by_choice=True)
    assert not script_carries(shape(2), shape(1), elasticity, by_choice=False)
    other = shape(precision=Precision.FP32)
    assert not script_carries(shape(), other, elasticity, by_choice=False)


def test_a_shape_is_said_in_words():
    assert str(shape(3, 1)) == "ZeRO-3 on 1 rank in bf16"
