"""The jobs that hold devices, as strategies see them that look ahead."""

import asyncio
import logging
from typing import Final

from frenzy_scheduler.core.decisions import Allocator, Progress, RunningJob, Strategy
from frenzy_scheduler.documents import Documents
from frenzy_shared.domain.job import JobRecord, JobState
from frenzy_shared.errors import NotFound
from frenzy_shared.state.port import StateStore

log = logging.getLogger(__name__)

_PLACED: Final = frozenset(
    {JobState.RESERVED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING}
)


async def placed_jobs(
    store: StateStore, documents: Documents, policy: Strategy
) -> list[RunningJob]:
    """Return the jobs with devices; nothing is read for a policy that does not look at them."""
    if not isinstance(policy, Allocator):
        return []
    records = await store.jobs_in(_PLACED)
    found = await asyncio.gather(*(_running(documents, record) for record in records))
    return [job for job in found if job is not None]


async def _running(documents: Documents, record: JobRecord) -> RunningJob | None:
    if record.placement is None:
        return None
    try:
        plan = await documents.plan(record)
    except NotFound as error:
        log.info("job %s has no known end: %s", record.id, error.message)
        return None
    ending = record.state is JobState.STOPPING
    return RunningJob(
        id=record.id,
        sequence=record.sequence,
        plans=(plan,),
        placement=record.placement,
        version=record.version,
        placed_ms=record.started_ms or record.updated_ms,
        preemptible=False,
        progress=Progress(steps_left=0.0 if ending else None),
    )
