"""Finished attempts, to learn from."""

from dataclasses import replace

from frenzy_marp.core.learning_runs import Conditions, Ending, Framework, Run
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision

CONDITIONS = Conditions(
    framework=Framework.TRAINER,
    kind="emulated-a",
    emulated=True,
    family="gpt2",
    method="full",
    optimizer="adamw",
    attention="sdpa",
    precision=Precision.BF16,
    zero_stage=1,
    sharded=False,
    checkpointing=ActivationCheckpointing.NONE,
    shape="one",
)


def run(number=1, *, ratio=1.0, slowness=None, conditions=CONDITIONS, reserved=None, **fields):
    """An attempt that needed ``ratio`` times what was predicted, and showed, with 5 % around.

    Its allocator ``reserved`` so many times that; None: it does not say.
    """
    standard = Run(
        id=f"job-{number}#1",
        time_ms=number,
        conditions=conditions,
        ending=Ending.WHOLE,
        predicted_bytes=1_000_000,
        shown_bytes=1_000_000,
        low_bytes=950_000,
        high_bytes=1_050_000,
        room=2.0,
        allocated_bytes=(int(ratio * 900_000), int(ratio * 1_000_000)),
        reserved_bytes=() if reserved is None else (int(reserved * int(ratio * 1_000_000)),),
        predicted_step_s=1.0,
        shown_step_s=1.0,
        step_s=slowness,
    )
    return replace(standard, **fields)


def under(**fields):
    """``CONDITIONS`` with changes."""
    return replace(CONDITIONS, **fields)
