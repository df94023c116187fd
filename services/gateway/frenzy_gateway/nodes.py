"""What an operator may do to a node, as changes for the store. Pure."""

from typing import Any, Final

from frenzy_shared.domain.cluster import (
    FORGOTTEN,
    NodeRecord,
    NodeState,
    dead_timer,
    drain_timer,
    fence_timer,
)
from frenzy_shared.errors import InvalidState, wrong_field
from frenzy_shared.messages import subjects
from frenzy_shared.messages.http import DrainRequest
from frenzy_shared.state.port import Change, NodeForgetting, OutboxMessage, Timer
from frenzy_shared.times import moment

_SERVING: Final = frozenset({NodeState.UP, NodeState.DRAINING})
_SILENT: Final = frozenset({NodeState.SUSPECT, NodeState.LOST})
_LONGEST_REASON: Final = 200
_REVOKED: Final = "its credentials were revoked by"
_LONGEST_DEADLINE_S: Final = 30 * 86_400


def drain_change(node: NodeRecord, request: DrainRequest, by: str, now_ms: int) -> Change:
    """Return what keeps new work away, and stops what runs once the deadline is over.

    A node that is away is drained too: it comes back without getting work.

    Raises:
        InvalidSpec: naming the wrong field.
    """
    _check(request)
    why = f"drained by {by}" + (f": {request.reason}" if request.reason else "")
    timer = drain_timer(node.id)
    timers: tuple[Timer, ...] = ()
    due_ms = 0
    if request.deadline_s is not None:
        timers = (Timer(id=timer, after_s=max(request.deadline_s, 0.001)),)
        due_ms = now_ms + round(request.deadline_s * 1000)
        why += f"; running jobs stop at {moment(due_ms):%Y-%m-%d %H:%M:%S} UTC"
    patch: dict[str, Any] = {"drain": why, "drain_by_ms": due_ms}
    if node.state in _SERVING:
        patch |= {"state": NodeState.DRAINING, "reason": why}
    return _change(
        node, patch, "draining", why, set_timers=timers, clear_timers=() if timers else (timer,)
    )


def undrain_change(node: NodeRecord, by: str) -> Change | None:
    """Return what lets a node have work again, strikes forgotten; None when it may already."""
    if not node.drain:
        return None
    patch: dict[str, Any] = {"drain": "", "drain_by_ms": 0, "strikes": []}
    if node.state is NodeState.DRAINING:
        patch |= {"state": NodeState.UP, "reason": ""}
    kind = "up" if node.state is NodeState.DRAINING else "changed"
    return _change(node, patch, kind, f"undrained by {by}", clear_timers=(drain_timer(node.id),))


def confirm_dead_change(node: NodeRecord, by: str) -> Change:
    """Return what gives up all that a silent node held, on its operator's word.

    Raises:
        InvalidState: it is not silent.
    """
    if node.state not in _SILENT:
        raise InvalidState(
            f"node {node.id} is {node.state}: its agent answers, so it is not dead",
            suggestions=(
                f"to take it out of service: frenzy nodes drain {node.id}",
                "if the machine has just died, wait until the node is SUSPECT or LOST",
            ),
        )
    why = f"confirmed dead by {by}"
    patch = {"state": NodeState.LOST, "reason": why}
    due = Timer(id=dead_timer(node), after_s=0.001)
    return _change(node, patch, "lost", why, set_timers=(due,))


def forgetting(node: NodeRecord, by: str) -> NodeForgetting:
    """Return what removes the record of a node that is gone.

    Raises:
        InvalidState: it is not lost yet.
    """
    if node.state is not NodeState.LOST:
        raise InvalidState(
            f"node {node.id} is {node.state}: only a LOST node can be forgotten",
            suggestions=(
                "switch its agent off and wait until the node is LOST",
                f"to take it out of service meanwhile: frenzy nodes drain {node.id}",
            ),
        )
    announcement = OutboxMessage(
        subject=subjects.node_event(FORGOTTEN, node.id),
        type=FORGOTTEN,
        data={"message": f"forgotten by {by}"},
    )
    return NodeForgetting(
        node=node.id,
        expect_version=node.version,
        timers=(fence_timer(node), dead_timer(node), drain_timer(node.id)),
        outbox=(announcement,),
    )


def revoked_change(node: NodeRecord, by: str) -> Change:
    """Return what shows at once that a node was shut out, and gives it no new work."""
    why = f"{_REVOKED} {by}"
    patch: dict[str, Any] = {"drain": why, "drain_by_ms": 0}
    if node.state in _SERVING:
        patch |= {"state": NodeState.DRAINING, "reason": why}
    return _change(node, patch, "draining", why, clear_timers=(drain_timer(node.id),))


def readmitted_change(node: NodeRecord, by: str) -> Change | None:
    """Return what lets a node have work again that was shut out and has joined anew."""
    return undrain_change(node, by) if node.drain.startswith(_REVOKED) else None


def _change(
    node: NodeRecord,
    patch: dict[str, Any],
    kind: str,
    message: str,
    *,
    set_timers: tuple[Timer, ...] = (),
    clear_timers: tuple[str, ...] = (),
) -> Change:
    data = {"message": message}
    kept = OutboxMessage(subject=subjects.decision("node", node.id), type=kind, data=data)
    announcement = OutboxMessage(subject=subjects.node_event(kind, node.id), type=kind, data=data)
    return Change(
        entity=f"node:{node.id}",
        expect_version=node.version,
        patch=patch,
        set_timers=set_timers,
        clear_timers=clear_timers,
        outbox=(kept, announcement),
    )


def _check(request: DrainRequest) -> None:
    if len(request.reason) > _LONGEST_REASON or not request.reason.isprintable():
        raise wrong_field("reason", f"use at most {_LONGEST_REASON} printable characters")
    deadline_s = request.deadline_s
    if deadline_s is not None and not 0 <= deadline_s <= _LONGEST_DEADLINE_S:
        raise wrong_field("deadline_s", "must be between 0 and 30 days, in seconds")
