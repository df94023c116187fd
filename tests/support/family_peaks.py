"""Script: what transformers' own modules hold while training, beside what the tape says.

Prints the names of all decoders, then one JSON line per architecture and set-up. There is no engine: every parameter's gradient
is dropped when backward has made it, which is how the tape counts.
"""

import json
import logging
import sys
import warnings
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from tests.support.families import FAMILIES
from torch import nn
from transformers.models.auto import modeling_auto as auto

from frenzy_marp.core.memory.common import masks, rotary_tables
from frenzy_marp.core.memory.profiles import (
    block_profile,
    ends_profile,
    saved_by_nobody_first,
)
from frenzy_marp.core.memory.shape import Shape, element_bytes
from frenzy_marp.core.memory.tape import rounded
from frenzy_shared.catalog.adapters import adapters_for
from frenzy_shared.catalog.models import architecture_from_config, attention_of
from frenzy_shared.domain.model import Attention, ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing, Loss, Precision
from frenzy_trainer.accountant import Accountant
from frenzy_trainer.adapters import add_adapters
from frenzy_trainer.chunked import chunk_loss
from frenzy_trainer.model import build_model

SEQUENCES, LENGTH = 3, 40
NONE, FULL = ActivationCheckpointing.NONE, ActivationCheckpointing.FULL
SETUPS = [
    (Precision.BF16, Attention.SDPA, NONE, "weights", Loss.FULL),
    (Precision.FP32, Attention.EAGER, NONE, "weights", Loss.CHUNKED),
    (Precision.BF16, Attention.EAGER, FULL, "weights", Loss.FULL),
    (Precision.FP32, Attention.SDPA, FULL, "weights", Loss.FULL),
    (Precision.BF16, Attention.SDPA, NONE, "adapters", Loss.CHUNKED),
    (Precision.FP32, Attention.EAGER, NONE, "adapters", Loss.FULL),
]
Setup = tuple[Precision, Attention, ActivationCheckpointing, str, Loss]


def counted(config: dict[str, Any], setup: Setup) -> dict[str, int]:
    """Train one step under the accountant: bytes above the weights, and the parameters."""
    precision, attention, checkpointing, trained, loss_kind = setup
    architecture = architecture_for(config, trained)
    with Accountant() as accountant:
        model = build_model(
            config,
            precision=precision,
            attention=attention,
            checkpointing=checkpointing,
            seed=0,
        )
        if architecture.adapters is not None:
            add_adapters(model, architecture.adapters)
        if loss_kind is Loss.CHUNKED:
            chunk_loss(model, architecture.chunk_length(LENGTH))
        weights = accountant.allocated_bytes
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_drop)
        tokens = torch.zeros((SEQUENCES, LENGTH), dtype=torch.int64)
        loss = model(input_ids=tokens, labels=tokens).loss
        kept = accountant.allocated_bytes - weights
        accountant.peak_bytes = 0
        loss.backward()
    return {
        "kept": kept,
        "peak": accountant.peak_bytes - weights,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def architecture_for(config: dict[str, Any], trained: str) -> ModelArchitecture:
    """Return the architecture, with adapters where only they are ``trained``."""
    model = architecture_from_config(config)
    if trained == "weights":
        return model
    adapters = adapters_for(model.family, (), rank=8, alpha=16, dropout=0.0)
    return replace(model, adapters=adapters)


def predicted(config: dict[str, Any], setup: Setup) -> dict[str, int]:
    """Return the same from MARP's tape, without the scalars."""
    precision, attention, checkpointing, trained, loss = setup
    model = architecture_for(config, trained)
    attention = attention_of(model, attention)
    shape = Shape(model, attention, SEQUENCES, LENGTH, element_bytes(precision), loss)
    block = block_profile(shape, checkpointing, gathers=False)
    ends = ends_profile(shape, gathers=False)
    kept = model.num_layers * block.kept + rotary_tables(shape)
    kept -= saved_by_nobody_first(shape) if checkpointing is NONE else 0
    kept += rounded(8 * SEQUENCES * LENGTH)
    if checkpointing is FULL:
        kept += int(masks(shape, np.array([SEQUENCES]))[0])
    layers = kept - block.kept + ends.waiting + max(block.backward.peaks)
    return {
        "kept": kept + ends.kept,
        "peak": max(kept + max(ends.last.peaks), layers, max(ends.first.peaks)),
        "parameters": model.num_trained_parameters,
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
