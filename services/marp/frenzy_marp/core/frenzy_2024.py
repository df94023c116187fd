"""The formula published with Frenzy (arXiv 2412.14479), reproduced as it is: the floor to beat.

Static: 20 bytes for each of W = V h + l (12 h^2 + 13 h) parameters, divided over t tensor-
parallel ranks. Activations: s b h l (10 + 24/t + 5 a s / (h t)) bytes. It knows no logits, no
ZeRO, no precision, no checkpointing and no temporaries; nothing here is corrected.
"""

from frenzy_shared.domain.model import ModelArchitecture

_BYTES_PER_PARAMETER = 20


def published_parameters(model: ModelArchitecture) -> int:
    """Return W, the paper's parameter count of a GPT block stack with its word embedding."""
    hidden = model.hidden_size
    return model.vocab_size * hidden + model.num_layers * (12 * hidden**2 + 13 * hidden)


def published_peak(
    model: ModelArchitecture, *, sequence_length: int, micro_batch_size: int, tensor: int = 1
) -> int:
    """Return the published estimate of one device's peak, in bytes, rounded down."""
    static = _BYTES_PER_PARAMETER * published_parameters(model) // tensor
    tokens = sequence_length * micro_batch_size
    per_token = model.hidden_size * model.num_layers
    # Multiplied out, so that whole numbers stay exact: h (10 + 24/t) + 5 a s / t.
    linear = tokens * per_token * (10 * tensor + 24) // tensor
    quadratic = 5 * tokens * model.num_layers * model.num_heads * sequence_length // tensor
    return static + linear + quadratic
