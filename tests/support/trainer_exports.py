"""Rank script: export models under every ZeRO stage and compare logits with transformers' reload.

Prints one JSON line per model and stage on rank 0.
"""

import copy
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from tests.support.trainer import TINY_GPT2, TINY_LLAMA, Job
from transformers import AutoModelForCausalLM

from frenzy_shared.catalog.adapters import adapters_for
from frenzy_shared.catalog.models import architecture_from_config
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_trainer.adapters import add_adapters
from frenzy_trainer.engine import start_distributed, start_engine
from frenzy_trainer.environment import read_environment
from frenzy_trainer.export import export_model
from frenzy_trainer.model import build_model
from frenzy_trainer.run import Run, read_run

MODELS = [
    ("gpt2-tied", TINY_GPT2, range(4)),
    ("llama-untied", TINY_LLAMA, range(4)),
    ("llama-tied", {**TINY_LLAMA, "tie_word_embeddings": True}, [3]),
]


ADAPTED = [("gpt2", TINY_GPT2, 2), ("llama", TINY_LLAMA, 3)]


def main() -> None:
    start_distributed(emulated=True)
    base = read_run(read_environment(os.environ))
    tokens = torch.arange(64).reshape(2, 32)
    for name, config, stage in ADAPTED:
        adapted(base, tokens, name, config, stage)
    for name, config, stages in MODELS:
        for stage in stages:
            precision = "fp32" if stage == 0 else "bf16"
            model = build_model(
                config,
                precision=Precision(precision),
                attention=Attention.SDPA,
                checkpointing=ActivationCheckpointing.NONE,
                seed=stage,
            )
            job = Job(data=Path("/"), ranks=2, zero_stage=stage, precision=precision, model=config)
            engine = start_engine(model, job.deepspeed_document)
            engine.backward(engine(input_ids=tokens, labels=tokens).loss)
            engine.step()
            with torch.no_grad():
                expected = engine(input_ids=tokens).logits
            folder = export_model(dataclasses.replace(base, model_config=config), engine)
            if base.environment.rank == 0:
                loaded = AutoModelForCausalLM.from_pretrained(folder)
                with torch.no_grad():
                    logits = loaded(input_ids=tokens).logits
                line = {
                    "case": f"{name} ZeRO-{stage}",
                    "equal": torch.equal(logits, expected),
                    "dtype": str(loaded.dtype),
                    "tied": loaded.lm_head.weight is loaded.get_input_embeddings().weight,
                }
                sys.stdout.write(json.dumps(line) + "\n")


def adapted(base: Run, tokens: torch.Tensor, name: str, config: dict[str, Any], stage: int) -> None:
    """Export adapters, and the model that they are merged into; print how far both are off."""
    model = build_model(
        config,
        precision=Precision.FP32,
        attention=Attention.SDPA,
        checkpointing=ActivationCheckpointing.NONE,
        seed=0,
    )
    original = copy.deepcopy(model)
    architecture = architecture_from_config(config)
    adapters = adapters_for(architecture.family, (), rank=4, alpha=8.0, dropout=0.0)
    run = dataclasses.replace(
        base, model_config=config, architecture=dataclasses.replace(architecture, adapters=adapters)
    )
    add_adapters(model, adapters)
    job = Job(data=Path("/"), ranks=2, zero_stage=stage, precision="fp32", model=config)
    engine = start_engine(model, job.deepspeed_document)
    for _ in range(3):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    with torch.no_grad():
        expected = engine(input_ids=tokens).logits
    folder = export_model(run, engine)
    if base.environment.rank == 0:
        with torch.no_grad():
            before = original(input_ids=tokens).logits
            merged = AutoModelForCausalLM.from_pretrained(folder)(input_ids=tokens).logits
            beside = PeftModel.from_pretrained(original, folder.parent / "adapter")
            values = {"before": before, "merged": merged, "beside": beside(input_ids=tokens).logits}
        off = {key: float((value - expected).abs().max()) for key, value in values.items()}
        line = {"case": f"{name} with adapters", **off}
        sys.stdout.write(json.dumps(line) + "\n")


main()
