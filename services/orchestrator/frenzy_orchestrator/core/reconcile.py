"""Compare what the control plane wants of this node with what the node holds.

Level-triggered: the same set twice, an old set late, or half a set at first all end in the same
place. Safety is the tombstone rule: once an attempt was told to stop, or a newer one of its job
ended here, it is refused for ever.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Order(StrEnum):
    """What the control plane wants of one attempt."""

    PREPARE = "prepare"
    WARM = "warm"  # start the ranks, which wait for GO
    GO = "go"
    STOP = "stop"


class Stage(StrEnum):
    """Where an attempt is on this node, as far as decisions need to know."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    WARMING = "warming"  # its processes were started, and wait for GO before they train
    ACTIVE = "active"  # started, stopping or exited: processes or their traces are here
    CLEAN = "clean"  # nothing of it is left, or nothing ever was


_RUNS: Final = (Stage.WARMING, Stage.ACTIVE)  # it says by itself how it ends


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttemptKey:
    """One try to run one job."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One attempt that the node knows. ``buried``: it has a tombstone."""

    stage: Stage
    buried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Get ready to run an attempt."""

    key: AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Start the ranks of a prepared attempt, which wait for GO."""

    key: AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Start the ranks of a prepared attempt, or let those train that wait."""

    key: AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Write the tombstone, end what runs. ``listed``: by order, not for being left out."""

    key: AttemptKey
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Say (again) that the attempt will not run here."""

    key: AttemptKey
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaffirm:
    """Say again that nothing of the attempt is left."""

    key: AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The control plane no longer cares: the folder may go when its time comes."""

    key: AttemptKey


Action = Prepare | WarmUp | Go | Stop | Refuse | Reaffirm | Forget


class Standing(StrEnum):
    """What a desired set's epoch says about the agent that received it."""

    CURRENT = "current"
    STALE = "stale"  # made before our registration: ignore
    FENCED = "fenced"  # another agent registered under our name


def standing(*, set_epoch: int, fenced: bool, own_epoch: int) -> Standing:
    """Judge a desired set by its epoch; ``own_epoch`` is 0 before registration."""
    if fenced or (own_epoch and set_epoch > own_epoch):
        return Standing.FENCED
    if not own_epoch or set_epoch < own_epoch:
        return Standing.STALE
    return Standing.CURRENT


def reconcile(
    wanted: Mapping[AttemptKey, Order],
    held: Mapping[AttemptKey, Held],
    *,
    asked: Collection[AttemptKey],
    ended: Mapping[str, int],
) -> tuple[Action, ...]:
    """Return what to do, stops first.

    ``asked`` are the attempts named in the heartbeat that a complete set answers: those that it
    then leaves out must stop. An attempt that arrived by a push in between is not judged by an
    answer that was made before; a push, which is never complete, judges none.
    ``ended`` is the newest attempt per job whose folder is already gone.
    """
    newest = _newest_ended(held, ended)
    actions: list[Action] = []
    for key, order in wanted.items():
        action = _decide(key, order, held.get(key), newest.get(key.job, 0))
        if action is not None:
            actions.append(action)
    actions.extend(_unlisted({key: held[key] for key in asked if key in held}, wanted))
    return tuple(sorted(actions, key=lambda action: not isinstance(action, Stop)))


def _decide(key: AttemptKey, order: Order, held: Held | None, newest_ended: int) -> Action | None:
    if order is Order.STOP:
        return _decide_stop(key, held)
    if held is None:
        return _decide_unknown(key, order, newest_ended)
    if held.stage is Stage.CLEAN or (held.buried and held.stage not in _RUNS):
        return Refuse(key=key, why="it was stopped here before")
    if order is Order.GO and held.stage in (Stage.PREPARED, Stage.WARMING) and not held.buried:
        return Go(key=key)
    if order is Order.WARM and held.stage is Stage.PREPARED:
        return WarmUp(key=key)
    return None


def _decide_stop(key: AttemptKey, held: Held | None) -> Action | None:
    if held is not None and held.stage is Stage.CLEAN:
        return Reaffirm(key=key)
    return None if held is not None and held.buried else Stop(key=key, listed=True)


def _decide_unknown(key: AttemptKey, order: Order, newest_ended: int) -> Action:
    if key.attempt <= newest_ended:
        return Refuse(key=key, why=f"attempt {newest_ended} of this job has ended here")
    if order in (Order.GO, Order.WARM):
        return Refuse(key=key, why="it was not prepared here")
    return Prepare(key=key)


def _unlisted(
    held: Mapping[AttemptKey, Held], wanted: Mapping[AttemptKey, Order]
) -> Iterable[Action]:
    for key, attempt in held.items():
        if key in wanted:
            continue
        if attempt.stage is Stage.CLEAN:
            yield Forget(key=key)
        elif not attempt.buried:
            yield Stop(key=key, listed=False)


def _newest_ended(held: Mapping[AttemptKey, Held], ended: Mapping[str, int]) -> dict[str, int]:
    newest = dict(ended)
    for key, attempt in held.items():
        if attempt.buried or attempt.stage is Stage.CLEAN:
            newest[key.job] = max(newest.get(key.job, 0), key.attempt)
    return newest
