"""Whole systems, shared by the tests of a module: starting one costs more than most tests."""

from collections.abc import Iterator

import pytest
from tests.support.deployment import Deployment


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One process of each service: a crash is survived by a restart, not by a replica."""
    with Deployment(tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two schedulers."""
    with Deployment(tmp_path_factory.mktemp("replicated"), schedulers=2) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show the services' logs with a failure: the test itself only sees the outside."""
    report = yield
    if report.failed and call.when == "call":
        for name in ("system", "replicated"):
            if (running := getattr(item, "funcargs", {}).get(name)) is not None:
                report.sections.append(("logs of the services", running.logs()))
    return report
