"""From a job's specification to the training set-up that MARP plans for."""

from dataclasses import replace
from typing import Final

from frenzy_shared.catalog.adapters import adapters_for
from frenzy_shared.catalog.models import (
    architecture_from_config,
    attention_of,
    max_positions,
    resolve_model,
)
from frenzy_shared.domain.model import Attention, ModelArchitecture, Pins, TrainingSetup
from frenzy_shared.domain.plan import Loss
from frenzy_shared.errors import FieldProblem, InvalidSpec
from frenzy_shared.messages.spec import JobSpec, Lora, memory_range

DEFAULT_SEQUENCE_LENGTH: Final = 1024
_BYTES: Final = 256


def training_setup(spec: JobSpec) -> TrainingSetup:
    """Return the set-up that ``spec`` asks for.

    Defaults: the sequence length is the model's longest, at most 1024; whatever is not pinned
    (precision, checkpointing, stage, micro-batch, devices) stays for MARP to choose; a job
    without ``max_steps`` has an unknown length.

    Raises:
        InvalidModelConfig: the model's configuration is impossible or unsupported.
        InvalidSpec: the sequence or the tokens do not fit the model.
    """
    model = trained_model(spec)
    if spec.entrypoint is None and spec.tokenizer is None and model.vocab_size < _BYTES:
        detail = f"bytes are the tokens, and vocab_size {model.vocab_size} has no room for {_BYTES}"
        problem = FieldProblem(pointer="/model/vocab_size", detail=detail)
        hint = f"use a vocab_size of at least {_BYTES}, or give a tokenizer"
        raise InvalidSpec(f"model: {detail}", problems=[problem], suggestions=[hint])
    return TrainingSetup(
        model=model,
        sequence_length=sequence_length(spec),
        global_batch_size=spec.global_batch_size,
        optimizer_steps=spec.max_steps,
        optimizer=spec.optimizer,
        attention=attention_of(model, Attention(spec.attention)),
        learning_rate=spec.learning_rate,
        pins=pins_of(spec),
        weight_decay=spec.weight_decay,
        gradient_clipping=spec.gradient_clipping,
        own_loss=spec.entrypoint is not None,
    )


def trained_model(spec: JobSpec) -> ModelArchitecture:
    """Return the architecture that ``spec`` trains, with its adapters where it has some.

    Raises:
        InvalidModelConfig: the model's configuration is impossible or unsupported.
        InvalidSpec: the architecture cannot have these adapters.
    """
    model = architecture_from_config(resolve_model(spec.model or {}))
    if spec.method != "lora":
        return model
    lora = spec.lora or Lora()
    adapters = adapters_for(
        model.family,
        lora.target_modules,
        rank=lora.rank,
        alpha=lora.alpha,
        dropout=lora.dropout,
    )
    return replace(model, adapters=adapters)


def sequence_length(spec: JobSpec) -> int:
    """Return the tokens per sequence: the specification's, else min(longest, 1024).

    Raises:
        InvalidSpec: too short to predict anything, or longer than learned positions reach.
    """
    config = resolve_model(spec.model or {})
    longest = max_positions(config)
    length = spec.sequence_length or min(longest, DEFAULT_SEQUENCE_LENGTH)
    detail = ""
    if length < 2:
        detail = "a sequence of one token leaves nothing to predict; use 2 or more"
    elif architecture_from_config(config).max_positions is not None and length > longest:
        detail = f"{length} is above the model's {longest} learned positions; use at most that"
    if detail:
        problem = FieldProblem(pointer="/sequence_length", detail=detail)
        raise InvalidSpec(f"sequence_length: {detail}", problems=[problem])
    return length


def pins_of(spec: JobSpec) -> Pins:
    """Return what ``spec`` fixes."""
    resources = spec.resources
    low, high = memory_range(resources.gpu_memory) if resources.gpu_memory else (None, None)
    return Pins(
        kinds=resources.kinds,
        exclude_kinds=resources.exclude_kinds,
        min_device_memory_bytes=low,
        max_device_memory_bytes=high,
        device_count=resources.gpus,
        max_devices=resources.max_gpus,
        zero_stage=resources.zero_stage,
        micro_batch_size=resources.micro_batch_size,
        tensor=resources.tensor,
        pipeline=resources.pipeline,
        precision=spec.precision,
        activation_checkpointing=spec.gradient_checkpointing,
        loss=None if spec.loss == "auto" else Loss(spec.loss),
        offload=resources.offload,
    )
