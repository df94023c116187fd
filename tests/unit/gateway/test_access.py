"""Who may do what: every route is looked at, so that a new one cannot be forgotten."""

import re

import pytest
from fastapi.routing import APIRoute

from frenzy_gateway.api.access import Policy
from frenzy_shared.auth import Role, new_token

PUBLIC = {"/healthz", "/readyz", "/metrics", "/schemas/job.json", "/openapi.json"}
# What an administrator of one project may do; all else of administrators is about the cluster.
OF_A_PROJECT = {
    ("POST", "/api/v1/tokens"),
    ("GET", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens/{token}:revoke"),
}
# Where a POST reads what is sent.
WITH_BODY = {
    f"/api/v1/{path}"
    for path in (
        "jobs",
        "arrays",
        "plans",
        "estimates",
        "tokens",
        "integrations",
        "integrations/{name}:rotate",
        "nodes:token",
        "nodes/{node}:drain",
    )
}
# Closed here, because this server enrols nobody: the one-time token in the body is what proves.
ENROLMENT = {"/ca.pem": 404, "/enrol": 415}


def routes(api):
    """Yield (method, path, policy) of every route, included routers too."""

    def walk(found):
        for route in found:
            if hasattr(route, "effective_route_contexts"):
                yield from walk(
                    [context.original_route for context in route.effective_route_contexts()]
                )
            else:
                yield route

    for route in walk(api.routes):
        for method in route.methods - {"HEAD"} or {"HEAD"}:
            yield method, route.path, policy_of(route) if isinstance(route, APIRoute) else None


def policy_of(route):
    def policies(dependant):
        for dependency in dependant.dependencies:
            if isinstance(dependency.call, Policy):
                yield dependency.call
            yield from policies(dependency)

    found = set(policies(route.dependant))
    assert len(found) <= 1
    return found.pop() if found else None


def concrete(path):
    return re.sub(r"\{digest\}", "sha256:" + "0" * 64, re.sub(r"\{job\}", "nosuchjob", path))


def test_every_api_route_names_its_role_and_everything_else_is_known_to_be_public(gateway):
    found = list(routes(gateway.api))
    assert len(found) > 20
    for method, path, policy in found:
        if path.startswith("/api/"):
            assert policy is not None, f"{method} {path} has no policy"
        else:
            assert path in PUBLIC | ENROLMENT.keys(), (
                f"{method} {path} is neither below /api nor known to be public"
            )


async def test_every_api_route_refuses_a_caller_without_a_token(gateway, problem):
    async with gateway.anonymous() as client:
        for method, path, _ in routes(gateway.api):
            response = await client.request(method, concrete(path))
            if path in PUBLIC:
                assert response.status_code == 200, path
            elif path in ENROLMENT:
                assert response.status_code == ENROLMENT[path], path
            elif method == "HEAD":
                assert response.status_code == 401
            else:
                problem(response, 401, "unauthenticated")
                assert response.headers["www-authenticate"].startswith("Bearer")


async def test_every_route_that_changes_something_is_closed_to_viewers(gateway, problem):
    async with await gateway.client(Role.VIEWER) as client:
        for method, path, policy in routes(gateway.api):
            if policy is not None and not Role.VIEWER.includes(policy.role):
                body = problem(await client.request(method, concrete(path)), 403, "forbidden")
                assert str(policy.role) in body["detail"]


async def test_the_cluster_is_closed_to_an_administrator_of_one_project(gateway, problem):
    refused = set()
    async with await gateway.client(Role.ADMIN, project="vision") as client:
        for method, path, policy in routes(gateway.api):
            of_admins = policy is not None and policy.role is Role.ADMIN
            if of_admins and (method, path) not in OF_A_PROJECT:
                body = problem(await client.request(method, concrete(path)), 403, "forbidden")
                assert "admin of all projects" in body["detail"], path
                assert "'vision'" in body["detail"]
                refused.add(path)
    assert {"/api/v1/nodes/{node}:drain", "/api/v1/nodes:token", "/api/v1/admin/dlq"} <= refused


async def test_a_nodes_token_opens_blobs_and_nothing_else(gateway, problem):
    opened = set()
    async with await gateway.client(Role.NODE) as client:
        for method, path, policy in routes(gateway.api):
            response = await client.request(method, concrete(path))
            if policy is not None and policy.role is Role.NODE:
                opened.add((method, path))
                assert response.status_code == 404  # no such blob
            elif policy is not None:
                problem(response, 403, "forbidden")
    assert opened == {("GET", "/api/v1/blobs/{digest}"), ("HEAD", "/api/v1/blobs/{digest}")}


async def test_a_body_that_no_one_would_read_is_refused(gateway, admin, problem):
    refused = set()
    for method, path, policy in routes(gateway.api):
        reads = (method == "POST" and path in WITH_BODY) or method in ("HEAD", "PUT")
        if policy is None or reads:
            continue
        answer = await admin.request(method, concrete(path), json={"apply": True})
        said = problem(answer, 400, "bad_request")["detail"]
        assert said.startswith("this route takes no body"), path
        if path.endswith("/reconcile"):
            assert "query parameters: apply" in said
        refused.add(path)
    assert {"/api/v1/admin/reconcile", "/api/v1/jobs/{job}:cancel"} <= refused
    assert (await admin.post("/api/v1/jobs/nosuchjob:cancel", json={})).status_code == 404


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("", "needs an API token"),
        ("Basic dXNlcjpwYXNz", "Bearer <token>"),
        ("Bearer", "look like"),
        ("Bearer nonsense", "look like"),
        ("Bearer " + new_token().text, "not valid here"),
    ],
    ids=["none", "another scheme", "no token", "not a token", "an unknown token"],
)
async def test_a_missing_or_wrong_token_is_refused_saying_which(gateway, problem, header, text):
    async with gateway.anonymous(**({"Authorization": header} if header else {})) as client:
        body = problem(await client.get("/api/v1/jobs"), 401, "unauthenticated")
    assert text in body["detail"]
    assert not header or header not in body["detail"]
    assert "nonsense" not in body["detail"]


async def test_an_expired_token_is_refused_by_name(gateway, problem):
    async with await gateway.client(expires_ms=gateway.clock.now + 10) as client:
        assert (await client.get("/api/v1/jobs")).status_code == 200
        gateway.clock.now += 10
        assert (
            "expired" in problem(await client.get("/api/v1/jobs"), 401, "unauthenticated")["detail"]
        )


async def test_another_projects_job_does_not_exist(gateway, problem, job):
    async with await gateway.client(Role.ADMIN, project="other") as client:
        for path in (
            "",
            "/spec",
            "/plans",
            "/timeline",
            "/metrics",
            "/logs",
            "/events",
            "/explain",
        ):
            problem(await client.get(f"/api/v1/jobs/{job}{path}"), 404, "not_found")
        problem(await client.post(f"/api/v1/jobs/{job}:cancel"), 404, "not_found")
        assert (await client.get("/api/v1/jobs")).json()["jobs"] == []
        problem(await client.get("/api/v1/jobs?project=default"), 403, "forbidden")


async def test_a_submission_goes_to_the_tokens_own_project(gateway, problem):
    spec = {"model": "gpt2", "data": "node:/d", "global_batch_size": 1}
    async with await gateway.client(Role.SUBMITTER, project="team") as client:
        assert (await client.post("/api/v1/jobs", json=spec)).json()["project"] == "team"
        problem(await client.post("/api/v1/jobs?project=default", json=spec), 403, "forbidden")


@pytest.mark.parametrize(
    "job_id", ["*", "a.b", "%3E", "%7Bfrenzy%7D:job", "x" * 300, "..%2f..%2fetc", "a%00b"]
)
async def test_ids_that_are_no_names_are_not_looked_up(admin, problem, job_id):
    problem(await admin.get(f"/api/v1/jobs/{job_id}"), 404, "not_found")


async def test_tokens_are_made_by_administrators_within_their_scope(gateway, admin, problem):
    made = await admin.post(
        "/api/v1/tokens",
        json={"name": "ci", "role": "viewer", "project": "team", "expires_in_s": 60},
    )
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    body = made.json()
    assert (body["role"], body["project"], body["name"]) == ("viewer", "team", "ci")
    async with gateway.anonymous(Authorization=f"Bearer {body['token']}") as client:
        assert (await client.get("/api/v1/jobs")).status_code == 200
        problem(await client.post("/api/v1/tokens", json={"name": "x"}), 403, "forbidden")
        gateway.clock.now += 60_000
        problem(await client.get("/api/v1/jobs"), 401, "unauthenticated")
    async with await gateway.client(Role.ADMIN, project="team") as client:
        assert (
            await client.post("/api/v1/tokens", json={"name": "x", "project": "team"})
        ).status_code == 201
        for project in ("*", "default"):
            problem(
                await client.post("/api/v1/tokens", json={"name": "x", "project": project}),
                403,
                "forbidden",
            )


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"role": "root"}, "/role"),
        ({"project": "cluster"}, "/project"),
        ({"project": "A b"}, "/project"),
        ({"expires_in_s": 0}, "/expires_in_s"),
        ({"expires_in_s": -1}, "/expires_in_s"),
        ({"expires_in_s": 1e12}, "/expires_in_s"),
        ({"name": 5}, "/name"),
        ({"name": ""}, "/name"),
        ({"nmae": "x"}, "/nmae"),
    ],
)
async def test_wrong_token_requests_name_the_field(admin, problem, change, pointer):
    body = problem(
        await admin.post("/api/v1/tokens", json={"name": "x", **change}), 422, "invalid_spec"
    )
    assert body["errors"][0]["pointer"] == pointer
