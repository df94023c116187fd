"""Rank script: the accountant's peak beside the one of torch's own allocator events.

Prints one JSON line per run of a configuration. The profiler sees every allocation of the CPU allocator,
also those inside operators; nothing of the accountant or of MARP is used for it.
"""

import json
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tests.support.trainer import TINY_GPT2, TINY_LLAMA, Job
from torch.profiler import ProfilerActivity, profile

from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing, Precision
from frenzy_trainer.accountant import Accountant
from frenzy_trainer.engine import start_distributed, start_engine
from frenzy_trainer.model import build_model

# Wide enough in vocabulary that what the kernels of this CPU use inside (oneDNN packs bf16
# operands, attention has block buffers) is far below 1 %; see docs/explanation/trainer.md.
GPT2 = {**TINY_GPT2, "vocab_size": 2048, "n_embd": 128}
LLAMA = {**TINY_LLAMA, "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 256}
CONFIGURATIONS = [
    (GPT2, 0, "fp32", "sdpa", "none"),
    (GPT2, 1, "bf16", "eager", "none"),
    (GPT2, 2, "bf16", "sdpa", "full"),
    (LLAMA, 1, "fp32", "eager", "full"),
    (LLAMA, 3, "bf16", "sdpa", "none"),
]
BATCH = (8, 64)
# Under ZeRO-3 the allocator's peak differs from run to run, by up to 2 % and upwards only, and the
# accountant's not at all. Probably gloo's own threads hold tensors a moment longer.
RUNS = {3: 4}


def train(model: dict[str, Any], stage: int, precision: str, attention: str, saved: str) -> None:
    built = build_model(
        model,
        precision=Precision(precision),
        attention=Attention(attention),
        checkpointing=ActivationCheckpointing(saved),
        seed=0,
    )
    job = Job(data=Path("/"), zero_stage=stage, precision=precision, model=model)
    engine = start_engine(built, job.deepspeed_document)
    for _ in range(2):
        tokens = torch.zeros(BATCH, dtype=torch.int64)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        del loss, tokens
        engine.step()


def measure(configuration: tuple[dict[str, Any], int, str, str, str]) -> None:
    start_distributed(emulated=True)
    accountant = Accountant()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler, accountant:
        train(*configuration)
    events = profiler.profiler.kineto_results.events()
    memory = [event for event in events if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(memory, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    line = {
        "case": [configuration[0]["model_type"], *configuration[1:]],
        "counted": accountant.peak_bytes,
        "allocator": peak,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# A process each: what an earlier engine frees late must not appear in the next profile. Forked,
# because the imports take longer than the training.
for case in CONFIGURATIONS:
    for _ in range(RUNS.get(case[1], 1)):
        child = get_context("fork").Process(target=measure, args=(case,))
        child.start()
        child.join()
