import re

import pytest

from frenzy_shared.catalog.models import (
    architecture_from_config,
    max_positions,
    resolve_model,
)
from frenzy_shared.catalog.presets import PRESETS
from frenzy_shared.domain.model import Attention, Family
from frenzy_shared.errors import InvalidModelConfig, InvalidSpec
from frenzy_shared.messages.setup import sequence_length, training_setup
from frenzy_shared.messages.spec import parse_spec

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256}


# What the models' authors publish (safetensors totals on their pages).
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "cerebras-gpt-111m": 111_050_496,
    "cerebras-gpt-13b": 12_853_386_240,
    "llama-65b": 65_285_660_672,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "code-llama-34b": 33_743_970_304,
    "open-llama-3b": 3_426_473_600,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "solar-10.7b": 10_731_524_096,
    "yi-34b": 34_388_917_248,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-coder-33b": 33_342_991_360,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-8b": 8_190_735_360,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "stablelm-3b": 2_795_443_200,
    "stablelm-2-1.6b": 1_644_515_328,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-15b": 15_957_889_024,
    "granite-3.1-8b": 8_170_848_256,
    "olmo-1b": 1_176_764_416,
    "olmo-2-7b": 7_298_617_344,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "gpt-neox-20b": 20_554_567_680,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-1.3b": 1_315_758_080,
    "opt-30b": 29_974_540_288,
    "gpt-j-6b": 6_050_882_784,
}


def counted(name):
    return architecture_from_config(resolve_model(name)).num_parameters


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_parameter_counts(name, parameters):
    assert counted(name) == parameters


def test_presets_have_the_size_in_their_name():
    assert len(PRESETS) >= 50
    units = {"m": 1e6, "b": 1e9}
    for name in PRESETS:
        # The last size is that of all experts; "8x7b" counts what experts share eight times.
        sizes = re.findall(r"(?:^|-)([\d.]+)([mb])(?=-|$)", name)
        for number, unit in sizes[-1:]:
            assert counted(name) == pytest.approx(float(number) * units[unit], rel=0.31), (
                name
            )  # Gemma is large for its name


def test_byte_models_are_small_enough_for_a_cpu():
    assert 0.3e6 < counted("llama-tiny") < counted("llama-medium") < 20e6


def test_resolved_presets_are_copies():
    resolve_model("gpt2")["n_embd"] = 1
    assert resolve_model("gpt2")["n_embd"] == 768


def test_unknown_preset_suggests_the_nearest():
    with pytest.raises(InvalidModelConfig, match="did you mean 'gpt2-medium'"):
        resolve_model("gpt2-mediun")


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (LLAMA, {"model_type": "bertt"}, "model.model_type: 'bertt' is not supported; use one"),
        (LLAMA, {"model_type": "bert"}, "model.model_type: 'bert' models cannot be planned"),
        (LLAMA, {"model_type": None}, "model.model_type: is required"),
        (LLAMA, {"hidden_size": 66}, "hidden_size (66) is not divisible by num_attention_heads"),
        (LLAMA, {"num_key_value_heads": 3}, "num_attention_heads (4) is not divisible by num_key"),
        (LLAMA, {"vocab_size": 0}, "model.vocab_size: is 0; give a number from 1 to"),
        (LLAMA, {"num_hidden_layers": -2}, "model.num_hidden_layers: is -2; give a number"),
        (LLAMA, {"num_hidden_layers": 10**12}, "model.num_hidden_layers: is 1000000000000"),
        (LLAMA, {"hidden_size": 10**400}, "model.hidden_size: is 1000"),
        (LLAMA, {"hidden_size": True}, "model.hidden_size: is 'True'; give a whole number"),
        (LLAMA, {"hidden_size": 64.0}, "model.hidden_size: is '64.0'; give a whole number"),
        (LLAMA, {"hidden_size": "64"}, "model.hidden_size: is '64'; give a whole number"),
        (LLAMA, {"vocab_size": None}, "model.vocab_size: is required"),
        (LLAMA, {"head_dim": 15}, "model.head_dim: is 15; rotary"),
        (LLAMA, {"hidden_act": "mish"}, "model.hidden_act: 'mish' is not supported"),
        (LLAMA, {"tie_word_embeddings": 1}, "model.tie_word_embeddings: is '1'; give true"),
        (LLAMA, {"auto_map": {"AutoModel": "evil.Model"}}, "model.auto_map: runs code"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "model.quantization_config: quantised"),
        (GPT2, {"n_embd": 10}, "n_embd (10) is not divisible by n_head (4)"),
        (GPT2, {"n_inner": float("nan")}, "model.n_inner: is 'nan'"),
        (GPT2, {"add_cross_attention": True}, "model.add_cross_attention: only plain decoders"),
    ],
)
def test_impossible_configurations_name_field_and_remedy(base, change, message):
    with pytest.raises(InvalidModelConfig) as caught:
        architecture_from_config({**base, **change})
    assert message in caught.value.message
    assert caught.value.problems[0].pointer.startswith("/model/")
    assert caught.value.suggestions


def test_transformers_aliases_are_read():
    aliased = {
        "model_type": "gpt2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 256,
    }
    assert architecture_from_config(aliased) == architecture_from_config(GPT2)
    assert max_positions({**GPT2, "n_positions": 77}) == 77


def setup(**changes):
    document = {"model": "gpt2-tiny", "data": "node:/text", "global_batch_size": 8, **changes}
    return training_setup(parse_spec(document))


def test_set_up_defaults():
    made = setup()
    assert made.model.family is Family.GPT2
    assert made.sequence_length == 256  # the model's longest, below 1024
    assert made.optimizer_steps is None
    assert made.pins.precision is None
    assert setup(model="llama-3.1-8b").sequence_length == 1024


def test_pins_come_from_the_specification():
    made = setup(
        precision="fp32",
        gradient_checkpointing="full",
        gradient_clipping=None,
        weight_decay=0.1,
        max_steps=7,
        resources={"gpu_memory": "1GiB..2GiB", "gpus": 2, "zero_stage": 3, "kinds": ["T4"]},
    )
    assert made.pins.min_device_memory_bytes == 1024**3
    assert made.pins.max_device_memory_bytes == 2 * 1024**3
    assert (made.pins.device_count, made.pins.zero_stage, made.pins.kinds) == (2, 3, ("T4",))
    assert (made.gradient_clipping, made.weight_decay, made.optimizer_steps) == (None, 0.1, 7)


@pytest.mark.parametrize(
    ("length", "message"), [(257, "257 is above the model's 256"), (1, "one token")]
)
def test_sequences_that_do_not_fit_the_model_are_refused(length, message):
    spec = parse_spec(
        {"model": "gpt2-tiny", "data": "node:/t", "global_batch_size": 1, "sequence_length": length}
    )
    with pytest.raises(InvalidSpec, match=message):
        sequence_length(spec)


def test_rotary_models_may_go_beyond_their_positions():
    assert setup(model="llama-tiny", sequence_length=4096).sequence_length == 4096


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "dbrx", "num_local_experts": 8}, "model.num_local_experts: this archit"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok: 9 of 8 expe"),
        ({"model_type": "mixtral", "output_router_logits": True}, "model.output_router_logits:"),
        (
            {"model_type": "qwen3_moe", "moe_intermediate_size": 64, "mlp_only_layers": [1]},
            "model.mlp_only_layers: layers w",
        ),
        ({"model_type": "olmoe", "clip_qkv": 8.0}, "model.clip_qkv: is not supported"),
        (
            {"model_type": "qwen3_moe", "moe_intermediate_size": 64, "num_experts": 10**12},
            "model.num_experts: is 1000000000000",
        ),
        ({"model_type": "mistrl"}, "did you mean 'mistral'"),
        ({"model_type": ["llama"]}, "model.model_type: \"['llama']\" is not supported"),
        ({"model_type": "phi", "rope_parameters": {"partial_rotary_factor": "x"}}, "is 'x'; give"),
        ({"model_type": "stablelm", "qk_layernorm": True}, "model.qk_layernorm: StableLM's"),
        ({"model_type": "olmo", "clip_qkv": 8.0}, "model.clip_qkv: is not supported"),
        ({"model_type": "mamba", "num_attention_heads": None}, "num_attention_heads: is required"),
        ({"model_type": "gemma2", "sliding_window": -1}, "model.sliding_window: is '-1'"),
    ],
)
def test_other_architectures_name_what_is_wrong(change, message):
    with pytest.raises(InvalidModelConfig) as caught:
        architecture_from_config({**LLAMA, **change})
    assert message in str(caught.value)


def test_an_unchecked_decoder_is_read_by_structure_and_flagged():
    model = architecture_from_config({**LLAMA, "model_type": "seed_oss"})
    assert (model.family, model.structure.assumed) == (Family.OTHER, True)
    assert not architecture_from_config(LLAMA).structure.assumed


def test_soft_capped_attention_runs_eager_whatever_is_asked_for():
    spec = {"model": "gemma-2-2b", "data": "node:/x", "global_batch_size": 1, "attention": "sdpa"}
    assert training_setup(parse_spec(spec)).attention is Attention.EAGER


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"lora": {"rank": 8}}, "lora needs method: lora"),
        ({"method": "lora", "lora": {"target_modules": ["q_porj"]}}, "did you mean 'q_proj'?"),
        ({"method": "lora", "lora": {"rank": 0}}, "lora.rank"),
        ({"method": "lora", "lora": {"ranks": 4}}, "did you mean 'rank'?"),
        ({"method": "lora", "model": {**LLAMA, "model_type": "cohere"}}, "known architecture"),
    ],
)
def test_bad_adapters_are_refused_in_words(spec, message):
    document = {"model": LLAMA, "data": "node:/x", "global_batch_size": 1, **spec}
    with pytest.raises(InvalidSpec) as caught:
        training_setup(parse_spec(document))
    assert message in str(caught.value)
