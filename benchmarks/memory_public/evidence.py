"""Make the file of corrections and errors that MARP ships, from the public cases."""

import json
from collections.abc import Sequence
from pathlib import Path

import frenzy_marp.core.cases
from frenzy_marp.core.cases.case import Case
from frenzy_marp.core.cases.censored import outcomes
from frenzy_marp.core.cases.fitting import fit, residuals, usual_errors
from frenzy_marp.core.cases.learned import EVIDENCE, USUAL, as_json

# Train Hugging Face's own modules, as Frenzy's trainer does.
HUGGING_FACE = frozenset({"hf_trainer", "deepspeed", "swift", "colossalai"})
SHIPPED = Path(frenzy_marp.core.cases.__path__[0]) / EVIDENCE


def write_evidence(cases: Sequence[Case], path: Path = SHIPPED) -> Path:
    """Fit on all cases and write the result: no row, source or group is in it."""
    rows = residuals(cases)
    made = {
        "made_by": "python -m benchmarks.memory_public --fit",
        "readings": len(rows),
        "analytical": as_json(fit(rows, shifted=False)),
        "learned": as_json(fit(rows, outcomes(cases))),
        USUAL: [round(error, 4) for error in usual_errors(rows, HUGGING_FACE).quantiles],
    }
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return path
