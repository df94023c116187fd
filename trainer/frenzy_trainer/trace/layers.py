"""What one layer of a real module holds, and what the rest does: two depths and their difference.

A module runs forward and backward with nothing around it; every gradient is dropped as soon as it
is handed over, so that what remains are activations and working memory. How an engine holds
gradients and states is then added by formula (frenzy_marp.core.memory).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from frenzy_shared.errors import InvalidModelConfig
from frenzy_shared.messages.trace import LayersTrace, TracedPart
from frenzy_trainer.trace.counting import Ledger
from frenzy_trainer.trace.fakes import fake_machine
from frenzy_trainer.trace.models import ModelSource, loss_of

_DEPTHS: Final = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class _Handed:
    """One gradient: of which layer (``None``: of none), its elements, and the bytes around it."""

    layer: int | None
    elements: int
    peak: int  # highest since the gradient before it
    live: int


@dataclass(slots=True)
class _Run:
    """One forward and backward pass; bytes count from the weights upwards."""

    forward_peak: int = 0
    kept: int = 0  # when forward has ended
    handed: list[_Handed] = field(default_factory=list[_Handed])
    last_peak: int = 0

    @property
    def highest(self) -> int:
        """Return the highest count of the whole run."""
        return max(self.forward_peak, self.last_peak, *(each.peak for each in self.handed))

    def of(self, layer: int) -> list[_Handed]:
        """Return the gradients of one layer."""
        return [each for each in self.handed if each.layer == layer]


def trace_layers(source: ModelSource) -> LayersTrace:
    """Trace the model with 2, 3 and 4 layers and return what a layer and the ends hold.

    Raises:
        InvalidModelConfig: the model's depth cannot be changed, or its layers are not alike.
    """
    small, middle, large = (_run(source.with_depth(depth), depth) for depth in _DEPTHS)
    one, two = middle.of(1), small.of(0)
    if not one or [each.elements for each in one] != [each.elements for each in two]:
        raise InvalidModelConfig("model: its layers are not alike, so that none stands for all")
    kept = middle.kept - small.kept
    cut = middle.handed.index(middle.of(2)[0])
    expected = middle.highest + kept
    return LayersTrace(
        layer=_part(one, kept=kept, below=kept, forward_peak=0),
        ends=_ends(middle, cut, kept),
        head_parameters=cut,
        error=round(expected / large.highest - 1, 6),
    )


def _run(source: ModelSource, depth: int) -> _Run:
    run = _Run()
    with fake_machine() as ledger:
        model = source.build()
        base = ledger.allocated_bytes
        _watch(model, depth, ledger, base, run)
        ledger.peak_bytes = base
        tokens = source.tokens()
        loss = loss_of(model(input_ids=tokens, labels=tokens))
        run.forward_peak, run.kept = ledger.peak_bytes - base, ledger.allocated_bytes - base
        ledger.peak_bytes = ledger.allocated_bytes
        loss.backward()  # type: ignore[no-untyped-call]
        run.last_peak = ledger.peak_bytes - base
    return run


def _watch(model: torch.nn.Module, depth: int, ledger: Ledger, base: int, run: _Run) -> None:
    """Note every gradient that is handed over, and drop it."""
    layers = next(
        (
            part
            for part in model.modules()
            if isinstance(part, torch.nn.ModuleList) and len(part) == depth
        ),
        None,
    )
    if layers is None:
        raise InvalidModelConfig("model: has no list of its layers")
    owner = {
        parameter: index for index, layer in enumerate(layers) for parameter in layer.parameters()
    }

    def hand_over(parameter: torch.Tensor) -> None:
        live, peak = ledger.allocated_bytes - base, ledger.peak_bytes - base
        run.handed.append(_Handed(owner.get(parameter), parameter.numel(), peak, live))  # type: ignore[call-overload]
        parameter.grad = None
        ledger.peak_bytes = ledger.allocated_bytes

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]


def _part(
    handed: Sequence[_Handed], *, kept: int, below: int, forward_peak: int, last_peak: int = 0
) -> TracedPart:
    """Return what is held beside the ``below`` bytes that other layers keep."""
    handing = [each.live - below for each in handed]
    after = last_peak or (handing[-1] if handing else 0)
    return TracedPart(
        kept_bytes=kept,
        forward_peak_bytes=forward_peak,
        parameters=tuple(each.elements for each in handed),
        peaks=(*(each.peak - below for each in handed), after),
        handing=tuple(handing),
    )


def _ends(run: _Run, cut: int, kept: int) -> TracedPart:
    """Return what is before and after the layers in the backward pass of three layers."""
    after = run.handed.index(run.of(0)[-1]) + 1
    head = _part(run.handed[:cut], kept=0, below=3 * kept, forward_peak=0)
    embedding = _part(run.handed[after:], kept=0, below=0, forward_peak=0, last_peak=run.last_peak)
    return TracedPart(
        kept_bytes=run.kept - 3 * kept,
        forward_peak_bytes=run.forward_peak - 3 * kept,
        parameters=head.parameters + embedding.parameters,
        peaks=head.peaks[:-1] + embedding.peaks,
        handing=head.handing + embedding.handing,
    )
