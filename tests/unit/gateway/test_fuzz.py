"""No body, path, query or header that a stranger can make ends in a 5xx."""

import json
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.gateway.conftest import SPEC

from frenzy_shared.messages.spec import JobSpec

FUZZ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.sampled_from(
        ["gpt2", "24GB..80GB", "90s", "node:/x", "blob:sha256:" + "0" * 64, "..", "1e999"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
SECTIONS = ("resources", "checkpoint", "entrypoint", "retry")
KEYS = st.sampled_from([*JobSpec.model_fields, "unknown"])


def asked(response):
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["code"]


@FUZZ
@given(st.dictionaries(KEYS, VALUES, max_size=4))
async def test_any_field_may_hold_anything(admin, changes):
    body = json.dumps({**SPEC, **changes})
    for path in ("/api/v1/jobs?validate_only=true", "/api/v1/jobs"):
        asked(await admin.post(path, content=body, headers={"Content-Type": "application/json"}))


@FUZZ
@given(
    st.sampled_from(SECTIONS),
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["gpus", "script", "kinds", "args"]),
        VALUES,
        max_size=3,
    ),
)
async def test_any_section_may_hold_anything(admin, section, content):
    body = json.dumps({**SPEC, "workdir": "node:/w", section: content})
    asked(
        await admin.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    )


@FUZZ
@given(st.binary(max_size=200), st.sampled_from(["/api/v1/jobs", "/api/v1/tokens"]))
async def test_any_bytes_may_be_a_body(admin, body, path):
    asked(await admin.post(path, content=body, headers={"Content-Type": "application/json"}))


@FUZZ
@given(VALUES)
async def test_any_document_may_ask_for_a_token(admin, document):
    asked(
        await admin.post(
            "/api/v1/tokens",
            content=json.dumps(document),
            headers={"Content-Type": "application/json"},
        )
    )


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "state",
            "project",
            "page_size",
            "page_token",
            "label.a",
            "label.",
            "rank",
            "attempt",
            "tail",
        ]
    ),
    TEXT,
    max_size=3,
)


@FUZZ
@given(TEXT, QUERIES, st.sampled_from(["", "/logs", "/events", "/spec", ":cancel"]))
async def test_any_path_and_query_may_be_asked(admin, segment, query, part):
    asked(await admin.get("/api/v1/jobs", params=query))
    path = f"/api/v1/jobs/{quote(segment, safe='')}{part}"
    asked(await admin.request("POST" if part == ":cancel" else "GET", path, params=query))


@FUZZ
@given(
    st.binary(max_size=40).map(lambda raw: bytes(b for b in raw if b >= 32 and b != 127)),
    st.sampled_from(
        [
            "Authorization",
            "Idempotency-Key",
            "traceparent",
            "Last-Event-ID",
            "Content-Type",
            "Accept",
        ]
    ),
)
async def test_any_header_may_be_sent(gateway, admin, value, name):
    headers = {"Content-Type": "application/json", name: value}
    asked(await admin.post("/api/v1/jobs", content=json.dumps(SPEC), headers=headers))
    asked(await admin.get("/api/v1/jobs", headers={name: value}))


CONFIG_KEYS = st.sampled_from(
    ["model_type", "n_embd", "n_head", "n_layer", "n_positions", "n_inner", "vocab_size", "hidden_size",
     "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
     "max_position_embeddings", "tie_word_embeddings", "attention_bias", "hidden_act", "rope_scaling"]
)  # fmt: skip
SIZES = st.integers(-2, 2**53) | st.sampled_from([1, 2, 64, 256])


@FUZZ
@given(
    st.sampled_from(["gpt2", "llama"]), st.dictionaries(CONFIG_KEYS, SIZES | VALUES, max_size=10)
)
async def test_any_model_config_may_be_sent(admin, family, config):
    spec = {**SPEC, "model": {"model_type": family, **config}}
    body = json.dumps(spec)
    asked(
        await admin.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    )
