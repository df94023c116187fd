"""Rank script: export models under every ZeRO stage and compare logits with transformers' reload.

Prints one JSON line per model and stage on rank 0.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch
from tests.support.trainer import TINY_GPT2, TINY_LLAMA, Job
from transformers import AutoModelForCausalLM

from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_trainer.engine import start_distributed, start_engine
from frenzy_trainer.environment import read_environment
from frenzy_trainer.export import export_model
from frenzy_trainer.model import build_model
from frenzy_trainer.run import read_run

MODELS = [
    ("gpt2-tied", TINY_GPT2, range(4)),
    ("llama-untied", TINY_LLAMA, range(4)),
    ("llama-tied", {**TINY_LLAMA, "tie_word_embeddings": True}, [3]),
]


def main() -> None:
    start_distributed(emulated=True)
    base = read_run(read_environment(os.environ))
    tokens = torch.arange(64).reshape(2, 32)
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


main()
