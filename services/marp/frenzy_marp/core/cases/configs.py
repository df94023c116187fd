"""Models that only this predictor knows, from their ``config.json``: what no plan can train yet.

DeepSeek's latent attention and mixtures with shared experts or dense layers, T5 and BERT.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from frenzy_marp.core.cases import vocabulary as word
from frenzy_marp.core.cases.case import CaseModel, LatentAttention
from frenzy_shared.catalog.fields import MAX_LAYERS, divides, flag, problem, size

Config = Mapping[str, Any]

_MAX_EXPERTS: Final = 4096


def case_model(config: Config) -> CaseModel | None:
    """Return the model of a configuration; None where plans know the architecture themselves.

    Raises:
        InvalidModelConfig: naming the field that is wrong.
    """
    read = _READERS.get(str(config.get("model_type")))
    return None if read is None else read(config)


def _deepseek(config: Config) -> CaseModel:
    hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    layers = size(config, "num_hidden_layers", limit=MAX_LAYERS)
    inner, vocabulary = size(config, "intermediate_size"), size(config, "vocab_size")
    query_rank = None if config.get("q_lora_rank") is None else size(config, "q_lora_rank")
    latent = LatentAttention(
        kv_rank=size(config, "kv_lora_rank"),
        q_rank=query_rank,
        nope_dim=size(config, "qk_nope_head_dim"),
        rope_dim=size(config, "qk_rope_head_dim"),
        value_dim=size(config, "v_head_dim"),
    )
    experts, chosen = _experts(config, "n_routed_experts")
    width = size(config, "moe_intermediate_size")
    shared = width * size(config, "n_shared_experts", default=1, limit=_MAX_EXPERTS)
    dense = _dense_layers(config, layers)
    tied = flag(config, "tie_word_embeddings", default=False)
    mixture = hidden * (3 * (experts * width + shared) + experts)
    parameters = (
        layers * (_latent_parameters(hidden, heads, latent) + 2 * hidden)
        + dense * 3 * hidden * inner
        + (layers - dense) * mixture
        + _outside(vocabulary, hidden, tied=tied)
    )
    return CaseModel(
        family=word.Family.DEEPSEEK,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=latent.nope_dim,
        intermediate_size=inner,
        vocab_size=vocabulary,
        tied_embeddings=tied,
        gated_mlp=True,
        norm=word.Norm.RMS,
        num_experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=width,
        shared_expert_intermediate_size=shared,
        num_dense_layers=dense,
        latent=latent,
        num_parameters=parameters,
    )


def _latent_parameters(hidden: int, heads: int, latent: LatentAttention) -> int:
    """Return the parameters of a layer's attention: to the ranks, their norms, and back."""
    wide = heads * (latent.nope_dim + latent.rope_dim)
    rank = latent.q_rank
    query = hidden * wide if rank is None else rank * (hidden + 1 + wide)
    keys = hidden * (latent.kv_rank + latent.rope_dim) + latent.kv_rank
    keys += latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return query + keys + heads * latent.value_dim * hidden


def _dense_layers(config: Config, layers: int) -> int:
    value = config.get("first_k_dense_replace", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= layers:
        raise problem("first_k_dense_replace", f"is {str(value)[:24]}", f"give 0 to {layers}")
    return value


def _qwen2_moe(config: Config) -> CaseModel:
    hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    layers = size(config, "num_hidden_layers", limit=MAX_LAYERS)
    keys = size(config, "num_key_value_heads", default=heads)
    divides(heads, hidden, "num_attention_heads", "hidden_size")
    experts, chosen = _experts(config, "num_experts")
    width = size(config, "moe_intermediate_size")
    shared = size(config, "shared_expert_intermediate_size")
    head_dim, vocabulary = hidden // heads, size(config, "vocab_size")
    tied = flag(config, "tie_word_embeddings", default=False)
    qkv = (heads + 2 * keys) * head_dim
    attention = (hidden + 1) * qkv + heads * head_dim * hidden
    mixture = hidden * (3 * (experts * width + shared) + experts + 1)  # and the shared one's gate
    return CaseModel(
        family=word.Family.QWEN2,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=keys,
        head_dim=head_dim,
        intermediate_size=shared,
        vocab_size=vocabulary,
        tied_embeddings=tied,
        gated_mlp=True,
        norm=word.Norm.RMS,
        num_experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=width,
        shared_expert_intermediate_size=shared,
        num_parameters=layers * (attention + mixture + 2 * hidden)
        + _outside(vocabulary, hidden, tied=tied),
    )


def _t5(config: Config) -> CaseModel:
    """Read an encoder and a decoder, whose layers also attend to the encoder's output."""
    hidden, heads = size(config, "d_model"), size(config, "num_heads")
    head_dim, inner = size(config, "d_kv"), size(config, "d_ff")
    encoder = size(config, "num_layers", limit=MAX_LAYERS)
    decoder = size(config, "num_decoder_layers", default=encoder, limit=MAX_LAYERS)
    vocabulary = size(config, "vocab_size")
    gated = str(config.get("feed_forward_proj", "relu")).startswith("gated")
    tied = flag(config, "tie_word_embeddings", default=True)
    attention = 4 * hidden * heads * head_dim
    fed = (3 if gated else 2) * hidden * inner
    buckets = size(config, "relative_attention_num_buckets", default=32) * heads
    parameters = (
        encoder * (attention + fed + 2 * hidden)
        + decoder * (2 * attention + fed + 3 * hidden)
        + 2 * (hidden + buckets)
        + vocabulary * hidden * (1 if tied else 2)
    )
    return CaseModel(
        family=word.Family.T5,
        hidden_size=hidden,
        num_layers=encoder + decoder,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        intermediate_size=inner,
        vocab_size=vocabulary,
        tied_embeddings=tied,
        gated_mlp=gated,
        norm=word.Norm.RMS,
        num_parameters=parameters,
    )


def _bert(config: Config) -> CaseModel:
    """Read an encoder with its masked-language head, whose matrix is the embedding's."""
    hidden, heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    divides(heads, hidden, "num_attention_heads", "hidden_size")
    layers = size(config, "num_hidden_layers", limit=MAX_LAYERS)
    inner, vocabulary = size(config, "intermediate_size"), size(config, "vocab_size")
    positions = size(config, "max_position_embeddings", default=512)
    block = 4 * (hidden + 1) * hidden + 2 * hidden * inner + inner + hidden + 4 * hidden
    types = size(config, "type_vocab_size", default=2)
    head = (hidden + 1) * hidden + 2 * hidden + vocabulary
    return CaseModel(
        family=word.Family.BERT,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=inner,
        vocab_size=vocabulary,
        max_positions=positions,
        tied_embeddings=True,
        gated_mlp=False,
        norm=word.Norm.LAYER,
        num_parameters=layers * block + (vocabulary + positions + types + 2) * hidden + head,
    )


def _experts(config: Config, name: str) -> tuple[int, int]:
    count = size(config, name, limit=_MAX_EXPERTS)
    chosen = size(config, "num_experts_per_tok", limit=_MAX_EXPERTS)
    if chosen > count:
        raise problem("num_experts_per_tok", f"{chosen} of {count} experts", f"give 1 to {count}")
    return count, chosen


def _outside(vocabulary: int, hidden: int, *, tied: bool) -> int:
    return vocabulary * hidden * (1 if tied else 2) + hidden


_READERS: Final[Mapping[str, Callable[[Config], CaseModel]]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "qwen2_moe": _qwen2_moe,
    "t5": _t5,
}
KNOWN: Final = frozenset(_READERS)
