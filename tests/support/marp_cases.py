"""Hand-made measured runs: small round numbers, so that bytes can be counted by hand."""

import copy
from typing import Any

HIDDEN, LAYERS, HEADS, INNER, VOCABULARY = 1024, 4, 8, 4096, 32000
EMBEDDING = VOCABULARY * HIDDEN
BLOCK = 4 * HIDDEN**2 + 3 * HIDDEN * INNER
PARAMETERS = 2 * EMBEDDING + LAYERS * BLOCK

_CASE: dict[str, Any] = {
    "id": "hand-1",
    "source": "made by hand",
    "group": "hand",
    "confidence": "high",
    "measured": {"metric": "allocated", "gib": 2.0, "rank": "rank0", "also": {}},
    "readings": {"allocated": 2.0},
    "metric_guess": None,
    "unexplained": False,
    "gpu": {"type": "A100-80GB", "count": 1, "capacity_gib": 79.15},
    "model": {
        "name": "hand",
        "hf_id": None,
        "family": "llama",
        "hidden_size": HIDDEN,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "num_kv_heads": HEADS,
        "head_dim": 128,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "max_positions": None,
        "tied_embeddings": False,
        "gated_mlp": True,
        "norm": "rms",
        "num_experts": 0,
        "experts_per_token": 0,
        "expert_intermediate_size": None,
        "shared_expert_intermediate_size": None,
        "num_dense_layers": None,
        "mla": None,
        "num_parameters": PARAMETERS,
    },
    "training": {
        "framework": "hf_trainer",
        "sequence_length": 64,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "tokens_effective": None,
        "method": "full",
        "lora": None,
        "quantization": None,
        "param_dtype": "bf16",
        "compute_dtype": "bf16",
        "autocast": False,
        "master_weights": False,
        "grad_dtype": "bf16",
        "optimizer": "adamw",
        "optimizer_state_dtype": "bf16",
        "optimizer_impl": "foreach",
        "activation_checkpointing": "full",
        "checkpointing_detail": None,
        "attention": "flash",
        "loss": "eager",
        "logits_dtype": "fp32",
        "compile": False,
        "dropout": 0.0,
        "offload": "none",
        "packing": "packed",
        "torch_version": "2.4.1",
        "allocator_expandable_segments": False,
        "quant_recipe": None,
        "fp8_all_gather": None,
        "kbit_upcast": False,
        "adapter_dtype": None,
        "loss_compiled": False,
        "logits_kept": False,
        "load_time_peak": False,
        "head": "lm",
        "optimizer_in_backward": False,
    },
    "parallelism": {
        "data": 1,
        "tensor": 1,
        "pipeline": 1,
        "context": 1,
        "expert": 1,
        "sequence_parallel": False,
        "virtual_pipeline": None,
        "pipeline_layers": None,
        "sharding": "none",
        "shard_degree": 1,
        "reduce_bucket_elements": None,
        "overlap_comm": None,
        "reshard_after_forward": None,
        "reduce_dtype": None,
        "expert_tensor": None,
    },
    "notes": "",
}
LORA = {
    "rank": 16,
    "targets": ["q", "v"],
    "dropout": 0.0,
    "trainable_parameters": 262144,
    "modules_to_save": [],
}


def case_fields(**sections: Any) -> dict[str, Any]:
    """Return a case's JSON; a section given as a dict changes only the fields it names."""
    fields = copy.deepcopy(_CASE)
    for name, value in sections.items():
        if isinstance(value, dict) and name != "readings":
            fields[name].update(value)
        else:
            fields[name] = value
    return fields
