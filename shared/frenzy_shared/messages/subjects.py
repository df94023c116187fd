"""Subjects and streams: the only place where subjects are built."""

from dataclasses import dataclass
from typing import Final, Literal

ROOT: Final = "frenzy.v1"

MARP_PLAN: Final = f"{ROOT}.rpc.marp.plan"
MARP_ESTIMATE: Final = f"{ROOT}.rpc.marp.estimate"
MARP_DRIFTS: Final = f"{ROOT}.rpc.marp.drifts"
SCHEDULER_EXPLAIN: Final = f"{ROOT}.rpc.scheduler.explain"
SCHEDULER_QUEUE: Final = f"{ROOT}.rpc.scheduler.queue"
SCHEDULER_RECORD: Final = f"{ROOT}.rpc.scheduler.record"
SCHEDULER_RECONCILE: Final = f"{ROOT}.rpc.scheduler.reconcile"
SECRETS: Final = f"{ROOT}.rpc.gateway.secrets.*"
HEARTBEATS: Final = f"{ROOT}.hb.*"
TELEMETRY: Final = f"{ROOT}.tel.*.*"
EVIDENCE: Final = f"{ROOT}.evd.>"
JOB_EVENTS: Final = f"{ROOT}.evt.*.job.>"
ALL_EVENTS: Final = f"{ROOT}.evt.>"
ALL_DECISIONS: Final = f"{ROOT}.dec.>"
JOBS_SUBMITTED: Final = f"{ROOT}.evt.*.job.submitted.*"


def job_event(project: str, kind: str, job: str) -> str:
    """Return the subject of one job event."""
    return f"{ROOT}.evt.{project}.job.{kind}.{job}"


def job_events(project: str, job: str) -> str:
    """Return the filter for all events of one job."""
    return f"{ROOT}.evt.{project}.job.*.{job}"


def events_of_kind(project: str, entity: str, kind: str) -> str:
    """Return the filter for one kind of event about jobs, projects, nodes or tokens.

    ``project`` "*" is all; nodes and tokens are the cluster's.
    """
    where = project if entity in ("job", "project") else "cluster"
    return f"{ROOT}.evt.{where}.{entity}.{kind}.*"


def project_events(project: str) -> str:
    """Return the filter for all events of one project."""
    return f"{ROOT}.evt.{project}.>"


def job_events_of_kind(kind: str) -> str:
    """Return the filter for one kind of job event in all projects."""
    return f"{ROOT}.evt.*.job.{kind}.*"


def node_event(kind: str, node: str) -> str:
    """Return the subject of one node event."""
    return f"{ROOT}.evt.cluster.node.{kind}.{node}"


def project_event(kind: str, project: str) -> str:
    """Return the subject of one kind of event of a project itself."""
    return f"{ROOT}.evt.{project}.project.{kind}.{project}"


def token_event(kind: str, token: str) -> str:
    """Return the subject of one kind of event of an API token."""
    return f"{ROOT}.evt.cluster.token.{kind}.{token}"


def decision(kind: str, name: str) -> str:
    """Return the subject that keeps the newest decision about a project, a token or a node."""
    return f"{ROOT}.dec.{kind}.{name}"


def evidence(node: str, kind: str) -> str:
    """Return the subject of one kind of evidence from a node."""
    return f"{ROOT}.evd.{node}.{kind}"


def log(project: str, job: str, attempt: int, rank: int) -> str:
    """Return the subject of one rank's log lines."""
    return f"{ROOT}.log.{project}.{job}.{attempt}.{rank}"


def job_logs(project: str, job: str) -> str:
    """Return the filter for all log lines of a job."""
    return f"{ROOT}.log.{project}.{job}.>"


def heartbeat(node: str) -> str:
    """Return the subject on which a node's heartbeat is asked and answered."""
    return f"{ROOT}.hb.{node}"


def secrets(node: str) -> str:
    """Return the subject on which a node asks for the secrets of what it starts."""
    return f"{ROOT}.rpc.gateway.secrets.{node}"


def desired(node: str) -> str:
    """Return the subject of the pushed desired set of a node."""
    return f"{ROOT}.node.{node}.desired"


def telemetry(project: str, job: str) -> str:
    """Return the subject of a job's training metrics."""
    return f"{ROOT}.tel.{project}.{job}"


def dead_letter(stream: str, consumer: str) -> str:
    """Return the dead-letter subject of one consumer."""
    return f"{ROOT}.dlq.{stream}.{consumer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Everything about a stream that Frenzy relies on."""

    name: str
    subject: str
    max_age_s: int
    max_bytes: int
    discard: Literal["old", "new"]
    duplicate_window_s: int = 600
    max_per_subject: int = -1  # messages; -1: any number
    persist_async: bool = False  # faster, may lose the last moments on power loss: logs only


EVENTS_STREAM: Final = "FRENZY_EVENTS"
EVIDENCE_STREAM: Final = "FRENZY_EVIDENCE"
LOGS_STREAM: Final = "FRENZY_LOGS"
DLQ_STREAM: Final = "FRENZY_DLQ"
DECISIONS_STREAM: Final = "FRENZY_DECISIONS"

# Durables that all replicas of a service share.
MARP_DURABLE: Final = "marp"  # of the events: jobs to plan
WAKE_DURABLE: Final = "scheduler"  # of the events: jobs to place
EVIDENCE_DURABLE: Final = "controller"

_DAY_S: Final = 86_400
STREAMS: Final = (
    StreamConfig(
        name=EVENTS_STREAM,
        subject=f"{ROOT}.evt.>",
        max_age_s=30 * _DAY_S,
        max_bytes=2 * 1024**3,
        discard="old",
    ),
    StreamConfig(
        name=EVIDENCE_STREAM,
        subject=EVIDENCE,
        max_age_s=7 * _DAY_S,
        max_bytes=1024**3,
        discard="new",
    ),
    StreamConfig(
        name=LOGS_STREAM,
        subject=f"{ROOT}.log.>",
        max_age_s=7 * _DAY_S,
        max_bytes=4 * 1024**3,
        discard="old",
        persist_async=True,
    ),
    StreamConfig(
        name=DLQ_STREAM,
        subject=f"{ROOT}.dlq.>",
        max_age_s=30 * _DAY_S,
        max_bytes=256 * 1024**2,
        discard="old",
    ),
    # What administrators decided outlives all events: of each thing the newest, without an age.
    StreamConfig(
        name=DECISIONS_STREAM,
        subject=ALL_DECISIONS,
        max_age_s=0,
        max_bytes=128 * 1024**2,
        discard="old",
        max_per_subject=1,
    ),
)
