"""A control plane and agents for each test; nothing may stay behind."""

import logging

import pytest
from tests.support.agent import Cluster


@pytest.fixture
async def cluster(tmp_path):
    """A scripted control plane without agents yet."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    made = Cluster(tmp_path / "cluster")
    await made.control.start()
    yield made
    await made.close()
    root.handlers[:] = handlers
