"""Secrets over HTTP: who may set them, that nobody reads them back, and jobs that name them."""

import pytest
from tests.support.secrets import KEYS, VALUE, key_file
from tests.unit.gateway.conftest import SPEC

from frenzy_gateway.adapters.sealing import Sealer
from frenzy_gateway.sealed import CannotOpen
from frenzy_shared.auth import Role
from frenzy_shared.errors import Misconfigured

JOBS = "/api/v1/jobs"
SECRETS = "/api/v1/projects/default/secrets"
WITH_SECRET = {**SPEC, "secrets": {"HF_TOKEN": "hub-token"}}


@pytest.fixture
async def people(gateway, tmp_path):
    """A submitter of the default project, at a gateway that has a key."""
    object.__setattr__(gateway.service, "seal", Sealer.load(key_file(tmp_path)))
    async with await gateway.client(Role.SUBMITTER, project="default") as client:
        yield client


async def test_a_secret_is_kept_sealed_listed_replaced_and_removed(gateway, people):
    answer = await people.put(f"{SECRETS}/hub-token", content=VALUE)
    assert answer.status_code == 200
    view = {"name": "hub-token", "project": "default", "updated_at": "2023-11-14T22:13:20Z"}
    assert answer.json() == view
    assert (await people.get(SECRETS)).json() == {"secrets": [view]}
    (kept,) = await gateway.store.secrets("default")
    assert VALUE not in kept.sealed
    assert gateway.service.seal.open(kept.sealed, "default/hub-token") == VALUE
    await people.put(f"{SECRETS}/hub-token", content="other")
    (newer,) = await gateway.store.secrets("default")
    assert gateway.service.seal.open(newer.sealed, "default/hub-token") == "other"
    assert (await people.delete(f"{SECRETS}/hub-token")).status_code == 204
    assert (await people.get(SECRETS)).json() == {"secrets": []}


async def test_there_is_no_way_to_read_a_value(people, problem):
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    problem(await people.get(f"{SECRETS}/hub-token"), 405, "method_not_allowed")
    assert VALUE not in (await people.get(SECRETS)).text


async def test_only_the_projects_submitters_touch_its_secrets(gateway, people, problem):
    viewer = await gateway.client(Role.VIEWER, project="default")
    stranger = await gateway.client(Role.ADMIN, project="vision")
    node = await gateway.client(Role.NODE)
    for client in (viewer, stranger, node):
        for answer in (
            await client.get(SECRETS),
            await client.put(f"{SECRETS}/hub-token", content=VALUE),
            await client.delete(f"{SECRETS}/hub-token"),
        ):
            problem(answer, 403, "forbidden")
    problem(await gateway.anonymous().get(SECRETS), 401, "unauthenticated")
    assert await gateway.store.secret_projects() == ()


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("hub-token", b"", 422, "1 to 65536 bytes (has 0)"),
        ("hub-token", b"\xff\xfe", 422, "UTF-8"),
        ("hub-token", b"a\0b", 422, "NUL"),
        ("hub-token", b"x" * 65_537, 413, "65536"),
        ("Hub_Token", b"x", 422, "1-63 characters"),
    ],
)
async def test_wrong_secrets_are_refused(people, path, body, status, said):
    answer = await people.put(f"{SECRETS}/{path}", content=body)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


async def test_the_largest_secret_is_taken(gateway, people):
    assert (await people.put(f"{SECRETS}/big", content=b"x" * 65_536)).status_code == 200


async def test_a_project_has_no_endless_secrets(people, problem, monkeypatch):
    monkeypatch.setattr("frenzy_gateway.secrets._MOST", 1)
    await people.put(f"{SECRETS}/one", content="1")
    problem(await people.put(f"{SECRETS}/two", content="2"), 403, "quota_exceeded")
    assert (await people.put(f"{SECRETS}/one", content="3")).status_code == 200


async def test_what_is_not_there_cannot_be_removed(people, problem):
    problem(await people.delete(f"{SECRETS}/hub-token"), 404, "not_found")


async def test_a_job_with_an_unknown_secret_is_refused_by_name(people, problem):
    said = problem(await people.post(JOBS, json=WITH_SECRET), 422, "invalid_spec")
    assert said["detail"] == "secrets.HF_TOKEN: project default has no secret 'hub-token'"
    assert said["errors"] == [
        {"pointer": "/secrets/HF_TOKEN", "detail": "project default has no secret 'hub-token'"}
    ]
    await people.put(f"{SECRETS}/hub-tokens", content="x")
    said = problem(await people.post(JOBS, json=WITH_SECRET), 422, "invalid_spec")
    assert "did you mean 'hub-tokens'?" in said["detail"]
    array = {**WITH_SECRET, "array": {"count": 2}}
    problem(await people.post("/api/v1/arrays", json=array), 422, "invalid_spec")
    only = {"validate_only": "true"}
    problem(await people.post(JOBS, json=WITH_SECRET, params=only), 422, "invalid_spec")
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    assert (await people.post(JOBS, json=WITH_SECRET)).status_code == 201
    assert (await people.post("/api/v1/arrays", json=array)).status_code == 201


async def test_a_jobs_own_project_must_have_the_secret(gateway, people, admin, problem):
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    other = {"project": "vision"}
    problem(await admin.post(JOBS, json=WITH_SECRET, params=other), 422, "invalid_spec")


async def test_a_gateway_without_a_key_keeps_no_secrets_and_says_so(admin, problem):
    said = problem(await admin.put(f"{SECRETS}/hub-token", content=VALUE), 409, "invalid_state")
    assert "FRENZY_SECRETS_KEY" in str(said["suggestions"])
    problem(await admin.post(JOBS, json=WITH_SECRET), 409, "invalid_state")
    assert (await admin.post(JOBS, json=SPEC)).status_code == 201


async def test_logs_name_secrets_and_never_show_them(people, caplog):
    caplog.set_level("DEBUG")
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    await people.delete(f"{SECRETS}/hub-token")
    assert "submitter-token set secret hub-token of project default" in caplog.text
    assert "submitter-token removed secret hub-token of project default" in caplog.text
    assert VALUE not in caplog.text


# -- sealing ----------------------------------------------------------------------------------


def test_what_is_sealed_opens_at_its_own_place_only(tmp_path):
    seal = Sealer.load(key_file(tmp_path))
    sealed = seal.seal(VALUE, "default/hub-token")
    assert sealed != seal.seal(VALUE, "default/hub-token")
    assert seal.open(sealed, "default/hub-token") == VALUE
    kind, key, text = sealed.split(".")
    for wrong, place in (
        (sealed, "vision/hub-token"),
        (f"{kind}.{key}.{'A' * len(text)}", "default/hub-token"),
        (f"{kind}.{key}.", "default/hub-token"),
        (f"v2.{key}.{text}", "default/hub-token"),
        ("nonsense", "default/hub-token"),
    ):
        with pytest.raises(CannotOpen):
            seal.open(wrong, place)


async def test_a_new_first_key_seals_all_anew_and_the_old_one_may_go(gateway, people, tmp_path):
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    both, new = key_file(tmp_path, KEYS[1], KEYS[0]), KEYS[1]
    object.__setattr__(gateway.service, "seal", Sealer.load(both))
    assert await gateway.service.secrets.reseal() == 1
    assert await gateway.service.secrets.reseal() == 0
    (kept,) = await gateway.store.secrets("default")
    assert Sealer.load(key_file(tmp_path, new)).open(kept.sealed, "default/hub-token") == VALUE
    assert (await people.get(SECRETS)).json()["secrets"][0]["updated_at"].startswith("2023")


async def test_what_no_key_opens_is_left_alone_and_said(gateway, people, tmp_path, caplog):
    await people.put(f"{SECRETS}/hub-token", content=VALUE)
    (before,) = await gateway.store.secrets("default")
    object.__setattr__(gateway.service, "seal", Sealer.load(key_file(tmp_path, KEYS[1])))
    assert await gateway.service.secrets.reseal() == 0
    assert await gateway.store.secrets("default") == (before,)
    assert "set it again: frenzy secret set hub-token --project default" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "64 hex digits"), ("ab12\n", "64 hex digits"), ("not hex\n", "ValueError")],
)
def test_a_bad_key_file_is_refused(tmp_path, text, said):
    path = key_file(tmp_path)
    path.write_text(text)
    with pytest.raises(Misconfigured, match=said):
        Sealer.load(path)


def test_a_key_file_that_others_may_read_or_that_is_not_there_is_refused(tmp_path):
    path = key_file(tmp_path)
    path.chmod(0o640)
    with pytest.raises(Misconfigured, match=r"may be read by others \(mode 0640\)"):
        Sealer.load(path)
    with pytest.raises(Misconfigured, match="FileNotFoundError"):
        Sealer.load(tmp_path / "none")
