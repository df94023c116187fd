"""Which matrices of an architecture can have low-rank adapters, by the names in its code."""

import difflib
from collections.abc import Mapping
from typing import Final

from frenzy_shared.domain.adapters import Adapters, Role
from frenzy_shared.domain.model import Family
from frenzy_shared.errors import FieldProblem, InvalidSpec

_SEPARATE: Final = {Role.QUERY: "q_proj", Role.KEY: "k_proj", Role.VALUE: "v_proj"}
_LLAMA: Final = {
    **_SEPARATE,
    Role.OUTPUT: "o_proj",
    Role.GATE: "gate_proj",
    Role.UP: "up_proj",
    Role.DOWN: "down_proj",
}
_LIKE_LLAMA: Final = (
    Family.GEMMA,
    Family.GEMMA2,
    Family.GRANITE,
    Family.LLAMA,
    Family.MISTRAL,
    Family.OLMO,
    Family.OLMO2,
    Family.OLMO3,
    Family.QWEN2,
    Family.QWEN3,
    Family.STABLELM,
)
# Experts are one tensor for all, not matrices that can have adapters.
_MIXTURES: Final = (Family.MIXTRAL, Family.OLMOE, Family.QWEN3_MOE)
_ATTENTION: Final = {**_SEPARATE, Role.OUTPUT: "o_proj"}
MODULES: Final[Mapping[Family, Mapping[Role, str]]] = {
    **dict.fromkeys(_LIKE_LLAMA, _LLAMA),
    **dict.fromkeys(_MIXTURES, _ATTENTION),
    Family.GPT2: {
        Role.FUSED: "c_attn",
        Role.OUTPUT: "c_proj",
        Role.UP: "c_fc",
        Role.DOWN: "c_proj",
    },
    Family.GPTJ: {**_SEPARATE, Role.OUTPUT: "out_proj", Role.UP: "fc_in", Role.DOWN: "fc_out"},
    Family.GPT_NEOX: {
        Role.FUSED: "query_key_value",
        Role.OUTPUT: "dense",
        Role.UP: "dense_h_to_4h",
        Role.DOWN: "dense_4h_to_h",
    },
    Family.OPT: {**_SEPARATE, Role.OUTPUT: "out_proj", Role.UP: "fc1", Role.DOWN: "fc2"},
    Family.PHI: {**_SEPARATE, Role.OUTPUT: "dense", Role.UP: "fc1", Role.DOWN: "fc2"},
    Family.PHI3: {
        Role.FUSED: "qkv_proj",
        Role.OUTPUT: "o_proj",
        Role.GATE_AND_UP: "gate_up_proj",
        Role.DOWN: "down_proj",
    },
    Family.STARCODER2: {
        **_SEPARATE,
        Role.OUTPUT: "o_proj",
        Role.UP: "c_fc",
        Role.DOWN: "c_proj",
    },
}


def adapters_for(
    family: Family, targets: tuple[str, ...], *, rank: int, alpha: float, dropout: float
) -> Adapters:
    """Return adapters of the matrices called ``targets``; of all of a block's when empty.

    Raises:
        InvalidSpec: the architecture is not known, or has no matrix of that name.
    """
    names = MODULES.get(family)
    if names is None:
        known = ", ".join(sorted(MODULES))
        raise _problem("method", f"adapters need a known architecture: {known}", "use method: full")
    for target in targets:
        if target not in names.values():
            close = difflib.get_close_matches(target, names.values(), n=1, cutoff=0.5)
            known = ", ".join(dict.fromkeys(names.values()))
            hint = f"did you mean {close[0]!r}?" if close else f"use some of: {known}"
            detail = f"{family} has no matrix called {target[:40]!r}"
            raise _problem("lora/target_modules", detail, hint)
    chosen = targets or tuple(dict.fromkeys(names.values()))
    return Adapters(
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        roles=tuple(role for role, name in names.items() if name in chosen),
        modules=tuple(dict.fromkeys(chosen)),
    )


def _problem(pointer: str, detail: str, remedy: str) -> InvalidSpec:
    text = f"{detail}; {remedy}"
    return InvalidSpec(
        f"{pointer.replace('/', '.')}: {text}",
        problems=[FieldProblem(pointer=f"/{pointer}", detail=text)],
        suggestions=[remedy],
    )
