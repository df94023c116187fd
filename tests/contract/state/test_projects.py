"""What is decided for projects, and what they have had."""

from tests.support.state import submission, submit

from frenzy_shared.domain.project import DeviceQuota, Project
from frenzy_shared.state.port import Status


async def test_projects_come_back_whole_and_by_name(store):
    assert await store.projects() == ()
    vision = Project(
        name="vision",
        weight=2.5,
        devices=DeviceQuota(limit=64),
        kinds={"A100 SXM4 40GB": DeviceQuota(nominal=8, limit=16), "T4": DeviceQuota(limit=0)},
        max_unfinished_jobs=100,
        max_running_jobs=10,
    )
    await store.put_project(vision)
    await store.put_project(Project(name="audio"))
    assert await store.projects() == (Project(name="audio"), vision)


async def test_a_project_stored_again_replaces_the_old_one(store):
    await store.put_project(Project(name="default", weight=2.0, max_unfinished_jobs=1))
    await submit(store, "j1")
    assert (await store.submit("op", submission("j2"))).status is Status.QUOTA
    await store.put_project(Project(name="default"))
    assert await store.projects() == (Project(name="default"),)
    assert (await store.submit("op", submission("j2"))).status is Status.OK


async def test_usage_is_one_document(store):
    assert await store.usage() is None
    await store.put_usage({"at_ms": 1, "device_s": {"vision": {"T4": 0.5}}})
    await store.put_usage({"at_ms": 2, "device_s": {}})
    assert await store.usage() == {"at_ms": 2, "device_s": {}}
