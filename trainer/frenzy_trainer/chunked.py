"""The loss, some positions at a time: never all logits of a micro-batch.

The gradients of a chunk's logits are made right after its loss, in forward, and what remains is
as large as the hidden states and the vocabulary projection. Nothing is computed twice.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

_IGNORED: Final = -100  # transformers' label of what is not predicted


@dataclass(frozen=True, slots=True)
class Chunking:
    """Positions of a sequence in a chunk; logits are divided by ``scale``, then bent at ``cap``."""

    positions: int
    scale: float = 1.0
    cap: float | None = None


def chunk_loss(model: PreTrainedModel, positions: int) -> None:
    """Make ``model`` compute its loss in chunks; its output then has no logits.

    The projection still runs as a module of its own, so that an engine which shards weights
    gathers this one in time.
    """
    config = model.config
    chunking = Chunking(
        positions=positions,
        scale=float(getattr(config, "logits_scaling", 1.0)),
        cap=getattr(config, "final_logit_softcapping", None),
    )
    head: Any = model.get_output_embeddings()
    head.forward = partial(_head_forward, head, chunking)
    model.forward = partial(_forward, model, head)


def _forward(
    model: PreTrainedModel, head: nn.Module, *, input_ids: torch.Tensor, labels: torch.Tensor
) -> CausalLMOutputWithPast:
    hidden = model.base_model(input_ids=input_ids).last_hidden_state
    return CausalLMOutputWithPast(loss=head(hidden, labels))


def _head_forward(
    head: nn.Module, chunking: Chunking, hidden: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    bias = getattr(head, "bias", None)
    loss: torch.Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, head.weight, bias, labels, chunking
    )
    return loss


class ChunkedLoss(torch.autograd.Function):
    """Mean cross-entropy of the next token, as transformers' ForCausalLMLoss defines it."""

    @staticmethod
    def forward(  # noqa: PLR0917 - the arguments of apply, which takes no others
        ctx: Any,  # noqa: ANN401 - torch's, one per call
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        chunking: Chunking,
    ) -> torch.Tensor:
        """Return the loss, and make all gradients on the way."""
        shifted = functional.pad(labels, (0, 1), value=_IGNORED)[..., 1:].contiguous()
        count = shifted.numel() - shifted.shape[0]
        towards_hidden = torch.empty_like(hidden)
        trained = ctx.needs_input_grad[1]
        towards_weight = torch.zeros_like(weight) if trained else None
        towards_bias = torch.zeros_like(bias) if trained and bias is not None else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, hidden.shape[1], chunking.positions):
            part = slice(start, start + chunking.positions)
            rows = hidden[:, part].reshape(-1, hidden.shape[-1])
            targets = shifted[:, part].reshape(-1)
            loss, gradient = _chunk(functional.linear(rows, weight, bias), targets, chunking)
            total += loss
            gradient = gradient.div_(count).to(hidden.dtype)
            towards_hidden[:, part] = (gradient @ weight).view_as(hidden[:, part])
            if towards_weight is not None:
                towards_weight.addmm_(gradient.T, rows)
            if towards_bias is not None:
                towards_bias += gradient.sum(0)
            del gradient, rows
        ctx.gradients = (towards_hidden, towards_weight, towards_bias)
        return total / count

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - as above
        *outputs: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """Scale the gradients that forward made."""
        (factor,) = outputs
        gradients = ctx.gradients
        ctx.gradients = None
        scaled = (None if value is None else value.mul_(factor) for value in gradients)
        return (*scaled, None, None)


def _chunk(
    logits: torch.Tensor, targets: torch.Tensor, chunking: Chunking
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the summed loss of a chunk, and its gradient towards the projection's output."""
    logits.div_(chunking.scale)
    slope = None
    if chunking.cap is not None:
        logits.div_(chunking.cap).tanh_()
        slope = logits.float().square().neg_().add_(1)
        logits.mul_(chunking.cap)
    high = logits.float()
    del logits
    result = functional.log_softmax(high, dim=-1)
    del high
    predicted = targets != _IGNORED
    chosen = targets.clamp(min=0).unsqueeze(1)
    loss = -(result.gather(1, chosen).squeeze(1) * predicted).sum()
    result.exp_().scatter_add_(1, chosen, torch.full_like(chosen, -1, dtype=result.dtype))
    result.mul_(predicted.unsqueeze(1))
    if slope is not None:
        result.mul_(slope)
    return loss, result.div_(chunking.scale)
