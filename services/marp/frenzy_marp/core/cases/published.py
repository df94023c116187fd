"""The formula published with Frenzy, on measured runs: the floor that every mode is beside.

Static: 20 W / t bytes with W = V h + l (12 h^2 + 13 h); activations: s b h l (10 + 24/t + 5 a s /
(h t)) bytes (arXiv 2412.14479). It knows neither precision nor sharding nor checkpointing.
"""

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import Run
from frenzy_marp.core.cases.estimate import CaseEstimate, Range
from frenzy_marp.core.cases.overhead import GIB

_BYTES_PER_PARAMETER = 20


def published_estimate(run: Run) -> CaseEstimate:
    """Return the published estimate for every metric: it has no bounds and knows one number."""
    size = published_bytes(run) / GIB
    exact = Range(size, size, size)
    capacity = run.card.capacity_gib
    fits = capacity is not None and size <= capacity
    return CaseEstimate(
        allocated=exact,
        reserved=exact,
        device=exact,
        required=exact,
        moment="sum",
        terms_gib=(),
        verdict=None if capacity is None else (word.Outcome.FITS if fits else word.Outcome.OOM),
        p_oom=None if capacity is None else float(not fits),
    )


def published_bytes(run: Run) -> float:
    """Return the published estimate of one device's peak."""
    model, training, tensor = run.model, run.training, run.parallelism.tensor
    hidden = model.hidden_size
    parameters = model.vocab_size * hidden + model.num_layers * (12 * hidden**2 + 13 * hidden)
    per_token = hidden * (10 + 24 / tensor)
    per_token += 5 * model.num_heads * training.sequence_length / tensor
    tokens = training.sequence_length * training.micro_batch_size
    return _BYTES_PER_PARAMETER * parameters / tensor + tokens * model.num_layers * per_token
