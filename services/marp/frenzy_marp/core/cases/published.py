"""The formula published with Frenzy, on measured runs: the floor that every mode is beside.

Static: 20 W / t bytes with W = V h + l (12 h^2 + 13 h); activations: s b h l (10 + 24/t + 5 a s /
(h t)) bytes (arXiv 2412.14479). It knows neither precision nor sharding nor checkpointing.
"""

from frenzy_marp.core.cases.case import Run

_BYTES_PER_PARAMETER = 20


def published_bytes(run: Run) -> float:
    """Return the published estimate of one device's peak."""
    model, training, tensor = run.model, run.training, run.parallelism.tensor
    hidden = model.hidden_size
    parameters = model.vocab_size * hidden + model.num_layers * (12 * hidden**2 + 13 * hidden)
    per_token = hidden * (10 + 24 / tensor)
    per_token += 5 * model.num_heads * training.sequence_length / tensor
    tokens = training.sequence_length * training.micro_batch_size
    return _BYTES_PER_PARAMETER * parameters / tensor + tokens * model.num_layers * per_token
