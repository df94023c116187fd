"""Identifiers. All match ``[a-z0-9-]+`` so that they are safe in subjects, keys and paths."""

import re
from typing import Final, NewType

JobId = NewType("JobId", str)
ProjectName = NewType("ProjectName", str)
NodeId = NewType("NodeId", str)
DeviceId = NewType("DeviceId", str)  # unique within its node
PlanId = NewType("PlanId", str)  # unique within its job

RESERVED_PROJECTS: Final = frozenset({"cluster"})  # used by subjects of cluster events
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Tell whether ``text`` is 1-63 characters of ``[a-z0-9-]`` without a dash at either end."""
    return _NAME.fullmatch(text) is not None
