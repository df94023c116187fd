"""From a specification to a training set-up: what the tokens need of the model."""

import pytest

from frenzy_shared.errors import InvalidSpec
from frenzy_shared.messages.setup import training_setup
from frenzy_shared.messages.spec import parse_spec

SMALL_VOCABULARY = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "vocab_size": 128,
}
SPEC = {"model": SMALL_VOCABULARY, "data": "node:/text", "global_batch_size": 4}


def test_bytes_need_256_tokens():
    with pytest.raises(InvalidSpec, match="vocab_size 128 has no room for 256"):
        training_setup(parse_spec(SPEC))


def test_a_tokenizer_or_a_script_of_ones_own_may_have_fewer():
    own = {**SPEC, "tokenizer": "node:/tokenizer.json"}
    assert training_setup(parse_spec(own)).model.vocab_size == 128
    script = {**SPEC, "entrypoint": {"script": "train.py"}, "workdir": "node:/code"}
    assert training_setup(parse_spec(script)).model.vocab_size == 128
