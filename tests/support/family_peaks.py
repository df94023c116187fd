"""Script: what transformers' own modules hold while training, beside what the tape says.

Prints the names of all decoders, then one JSON line per architecture and set-up. There is no engine: every parameter's gradient
is dropped when backward has made it, which is how the tape counts.
"""

import json
import logging
import sys
import warnings
from itertools import product
from typing import Any

import numpy as np
import torch
from tests.support.families import FAMILIES
from torch import nn
from transformers.models.auto import modeling_auto as auto

from frenzy_marp.core.memory.blocks import Shape, element_bytes
from frenzy_marp.core.memory.common import masks, rotary_tables
from frenzy_marp.core.memory.profiles import block_profile, ends_profile
from frenzy_marp.core.memory.tape import rounded
from frenzy_shared.catalog.models import architecture_from_config, attention_of
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_trainer.accountant import Accountant
from frenzy_trainer.model import build_model

SEQUENCES, LENGTH = 3, 40
SETUPS = [
    (Precision.BF16, Attention.SDPA, ActivationCheckpointing.NONE),
    (Precision.FP32, Attention.EAGER, ActivationCheckpointing.NONE),
    (Precision.BF16, Attention.EAGER, ActivationCheckpointing.FULL),
    (Precision.FP32, Attention.SDPA, ActivationCheckpointing.FULL),
]
Setup = tuple[Precision, Attention, ActivationCheckpointing]


def counted(config: dict[str, Any], setup: Setup) -> dict[str, int]:
    """Train one step under the accountant: bytes above the weights, and the parameters."""
    precision, attention, checkpointing = setup
    with Accountant() as accountant:
        model = build_model(
            config,
            precision=precision,
            attention=attention,
            checkpointing=checkpointing,
            seed=0,
        )
        weights = accountant.allocated_bytes
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop)
        tokens = torch.zeros((SEQUENCES, LENGTH), dtype=torch.int64)
        loss = model(input_ids=tokens, labels=tokens).loss
        kept = accountant.allocated_bytes - weights
        accountant.peak_bytes = 0
        loss.backward()
    return {
        "kept": kept,
        "peak": accountant.peak_bytes - weights,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def predicted(config: dict[str, Any], setup: Setup) -> dict[str, int]:
    """Return the same from MARP's tape, without the scalars."""
    precision, attention, checkpointing = setup
    model = architecture_from_config(config)
    shape = Shape(
        model, attention_of(model, attention), SEQUENCES, LENGTH, element_bytes(precision)
    )
    block = block_profile(shape, checkpointing, gathers=False)
    ends = ends_profile(shape, gathers=False)
    kept = model.num_layers * block.kept + rotary_tables(shape)
    kept += rounded(8 * SEQUENCES * LENGTH)
    if checkpointing is ActivationCheckpointing.FULL:
        kept += int(masks(shape, np.array([SEQUENCES]))[0])
    layers = kept - block.kept + ends.waiting + max(block.backward.peaks)
    return {
        "kept": kept + ends.kept,
        "peak": max(kept + max(ends.last.peaks), layers, max(ends.first.peaks)),
        "parameters": model.num_parameters,
    }


def _drop(parameter: nn.Parameter) -> None:
    parameter.grad = None


def decoders() -> list[str]:
    """Return the types that the installed library has as decoders and as nothing else."""
    names = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    names -= set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    return sorted(names - set(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES))


warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
sys.stdout.write(json.dumps(decoders()) + "\n")
for (name, document), chosen in product(FAMILIES.items(), SETUPS):
    line = {
        "case": [name, *map(str, chosen)],
        "counted": counted(document, chosen),
        "predicted": predicted(document, chosen),
    }
    sys.stdout.write(json.dumps(line) + "\n")
