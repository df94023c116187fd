"""Our arithmetic against transformers itself, on the meta device."""

import json
import subprocess
import sys

from frenzy_marp.core.memory.profiles import block_profile, ends_profile
from frenzy_marp.core.memory.shape import Shape
from frenzy_shared.catalog.models import architecture_from_config, resolve_model
from frenzy_shared.domain.model import Attention
from frenzy_shared.domain.plan import ActivationCheckpointing

NAMES = ["gpt2-tiny", "gpt2", "llama-tiny", "cerebras-gpt-111m", "llama-68m", "smollm2-135m"]
NAMES += ["granite-3b-code", "llama-3.2-1b"]
COUNT = """
import json, sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
kinds = {"gpt2": (GPT2Config, GPT2LMHeadModel), "llama": (LlamaConfig, LlamaForCausalLM)}
result = []
for config in json.load(sys.stdin):
    make, model = kinds[config["model_type"]]
    with torch.device("meta"):
        built = model(make(**config))
    result.append(sorted(p.numel() for p in built.parameters()))
print(json.dumps(result))
"""


def variants():
    configs = [resolve_model(name) for name in NAMES]
    biased = {**resolve_model("llama-tiny"), "attention_bias": True, "mlp_bias": True}
    untied = {**resolve_model("gpt2-tiny"), "tie_word_embeddings": False}
    return [*configs, biased, untied]


def test_counts_and_sizes_agree_with_transformers():
    configs = variants()
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        input=json.dumps(configs),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    for config, numels in zip(configs, json.loads(done.stdout), strict=True):
        model = architecture_from_config(config)
        assert model.num_parameters == sum(numels), config
        shape = Shape(model, Attention.SDPA, 1, 8, 4)
        block = block_profile(shape, ActivationCheckpointing.NONE, gathers=False)
        ends = ends_profile(shape, gathers=False)
        handed = (
            ends.last.parameters
            + model.num_layers * block.backward.parameters
            + ends.first.parameters
        )
        if model.family == "gpt2":  # the fused projection is handed over as weight and bias
            assert sorted(size // 4 for size in handed) == numels, config
        assert sum(handed) == 4 * model.num_parameters, config
