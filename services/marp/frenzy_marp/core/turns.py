"""Whose turn it is when more jobs wait for plans than can be planned now. Pure."""

from collections.abc import Iterator, Sequence
from random import Random

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.job import JobRecord


def in_turn(waiting: Sequence[JobRecord], draw: Random) -> Iterator[JobRecord]:
    """Yield one job of each project, then a second of each, and so on.

    So a project with one job does not wait for one with thousands. Within a project the order is
    drawn: replicas that look at the same time seldom take the same job.
    """
    by_project: dict[ProjectName, list[JobRecord]] = {}
    for record in waiting:
        by_project.setdefault(record.project, []).append(record)
    queues = list(by_project.values())
    draw.shuffle(queues)
    for queue in queues:
        draw.shuffle(queue)
    while queues:
        for queue in queues:
            yield queue.pop()
        queues = [queue for queue in queues if queue]
