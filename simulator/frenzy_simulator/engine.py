"""The discrete-event engine: the scheduler's own cycle inside, a virtual clock around it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from frenzy_scheduler.core.decisions import Allocator, Place, Preempt, Resize, Strategy
from frenzy_shared.domain.cluster import NodeRecord
from frenzy_shared.domain.ids import JobId, NodeId
from frenzy_shared.domain.placement import Placement
from frenzy_shared.domain.project import Project
from frenzy_simulator.events import Agenda, Event, Kind
from frenzy_simulator.jobs import SimJob
from frenzy_simulator.live import LiveJob
from frenzy_simulator.machines import Machines
from frenzy_simulator.outcome import JobOutcome, Outcome, Solver, Stay
from frenzy_simulator.rivals.rigid import as_requested
from frenzy_simulator.scenario import Scenario
from frenzy_simulator.throughput import ThroughputModel
from frenzy_simulator.users import Ask, ManualUsers
from frenzy_simulator.waiting import Change, Look, Waiting

_CALMEST: Final = 16  # ticks without a change make the next tick at most this many times later

Watch = Callable[[int, int], None]  # jobs that are over, jobs in all


@dataclass(kw_only=True)
class Simulation:
    """One workload on one cluster under one strategy. ``users`` choose plans in Frenzy's place.

    ``look`` is shown what every cycle is about to decide from: queue, running jobs, cluster, time.
    """

    jobs: Sequence[SimJob]
    nodes: Sequence[NodeRecord]
    model: ThroughputModel
    strategy: Strategy
    scenario: Scenario
    users: ManualUsers | None = None
    name: str = ""  # of the policy in results; the strategy's when empty
    look: Look | None = None
    projects: Sequence[Project] = ()  # those with quotas
    rigid: bool = False  # jobs run on as many devices as users asked for

    def run(self, watch: Watch | None = None) -> Outcome:
        """Simulate until every job is over. Equal simulations give equal outcomes."""
        engine = _Engine(self)
        engine.run(watch)
        return engine.outcome


class _Engine:
    def __init__(self, simulation: Simulation) -> None:
        self._given = simulation
        self._scenario = simulation.scenario
        self._preemptive = (
            isinstance(simulation.strategy, Allocator) and simulation.strategy.preemptive
        )
        self._machines = Machines(simulation.nodes)
        self._agenda = Agenda()
        self._jobs = {job.id: job for job in simulation.jobs}
        self._queue = Waiting(simulation.strategy, simulation.look, simulation.projects)
        self._running: dict[JobId, LiveJob] = {}
        self._thinking: dict[JobId, LiveJob] = {}
        self._asks: dict[JobId, Ask] = {}
        self._repairs: dict[NodeId, int] = {}
        self._ahead = len(simulation.jobs)
        self._now_ms = 0
        self._open_job_ms = 0  # integral of the jobs in the system over time
        self._open_at_arrival: dict[JobId, int] = {}
        self._calm = 1
        self._tick_ms = -1
        name = simulation.name or simulation.strategy.name
        self.outcome = Outcome(policy=name, devices=self._machines.devices)

    def run(self, watch: Watch | None) -> None:
        for job in self._given.jobs:
            self._agenda.add(round(job.submit_s * 1000), Kind.ARRIVE, job=job.id)
        for node in self._given.nodes:
            self._plan_failure(node.id, 0)
        while self._open or self._ahead:
            at_ms = self._agenda.next_ms()
            if at_ms is None:
                break
            self._open_job_ms += self._open * (at_ms - self._now_ms)
            self._now_ms = at_ms
            events = self._agenda.pop_all(at_ms)
            relevant = [event for event in events if self._handle(event)]
            if relevant:
                self._decide(ticked=all(event.kind is Kind.TICK for event in relevant))
            if watch is not None:
                watch(len(self.outcome.done) + len(self.outcome.never), len(self._jobs))
        if isinstance(self._given.strategy, Solver):
            self.outcome.unsolved = self._given.strategy.unsolved
        self.outcome.unfinished = [*self._queue.jobs, *self._running, *self._thinking]

    @property
    def _open(self) -> int:
        return len(self._queue) + len(self._running) + len(self._thinking)

    def _handle(self, event: Event) -> bool:
        """Let an event happen; tell whether the scheduler must look."""
        match event.kind:
            case Kind.ARRIVE:
                return self._arrive(self._jobs[event.job])
            case Kind.FINISH:
                return self._finish(event)
            case Kind.MOVE:
                return self._move(event)
            case Kind.OOM:
                return self._run_out(event)
            case Kind.ASK_AGAIN:
                self._ask_again(event.job)
            case Kind.FAIL:
                self._fail(event.node)
            case Kind.REPAIR:
                self._machines.repair(event.node)
                self._queue.rebuilt()
                self._repairs[event.node] = self._repairs.get(event.node, 0) + 1
                self._plan_failure(event.node, self._repairs[event.node])
            case Kind.TICK:
                return event.at_ms == self._tick_ms
        return True

    def _arrive(self, job: SimJob) -> bool:
        self._ahead -= 1
        plans = self._given.model.plans(job.setup)
        if not plans:
            self.outcome.never.append(job.id)
            return False
        size = self._given.model.checkpoint_bytes(job.setup)
        live = LiveJob(
            job=job,
            plans=as_requested(plans, job.gpus_requested) if self._given.rigid else plans,
            arrived_ms=self._now_ms,
            restart_s=self._scenario.restart_s(size),
            move_s=self._scenario.move_s(size),
            steps_left=job.steps,
            real_left=self._scenario.real_steps(job),
            queued_since_ms=self._now_ms,
        )
        self._open_at_arrival[job.id] = self._open_job_ms
        self._ask(live)
        self._queue.enter(live)
        return True

    def _finish(self, event: Event) -> bool:
        live = self._running.get(event.job)
        if live is None or live.generation != event.generation:
            return False
        alone_s = self._alone_s(live)
        self._release(live)
        self.outcome.done.append(self._story(live, alone_s))
        return True

    def _run_out(self, event: Event) -> bool:
        live = self._running.get(event.job)
        users = self._given.users
        if live is None or users is None or live.generation != event.generation:
            return False
        self._stop(live, lost_s=math.inf)  # it never trained
        self._queue.leave(event.job)
        self._thinking[event.job] = live
        live.ooms += 1
        think_s = users.think_again_s(live.job, live.ooms)
        self._agenda.add(self._now_ms + round(think_s * 1000), Kind.ASK_AGAIN, job=event.job)
        return True

    def _ask_again(self, job: JobId) -> None:
        live = self._thinking.pop(job)
        self._ask(live)
        self._queue.enter(live)

    def _ask(self, live: LiveJob) -> None:
        users = self._given.users
        if users is None:
            return
        plans = self._given.model.plans(live.job.setup)
        ask = self._asks[live.job.id] = users.ask(live.job, plans, live.ooms)
        live.plans, live.queued = (ask.plan,), None

    def _fail(self, node: NodeId) -> None:
        """Lose a node: its jobs go back to their last checkpoints and wait again."""
        interval_s = self._scenario.checkpoint_interval_s
        for job in list(self._machines.users_of(node)):
            live = self._running.get(_mover(job))
            if live is None:
                continue  # it had devices of this node twice, and is stopped already
            if job not in self._running:  # it got ready here, and stays where it is
                self._give_up(live)
                continue
            trained_s = max(self._now_ms - live.trains_from_ms, 0) / 1000
            self._stop(live, lost_s=trained_s % interval_s)
        self._machines.fail(node)
        self._queue.rebuilt()
        self.outcome.node_failures += 1
        repaired_ms = self._now_ms + round(self._scenario.node_repair_s * 1000)
        self._agenda.add(repaired_ms, Kind.REPAIR, node=node)

    def _plan_failure(self, node: NodeId, nth: int) -> None:
        seconds = self._scenario.time_to_failure_s(node, nth)
        if seconds is not None:
            self._agenda.add(self._now_ms + round(seconds * 1000), Kind.FAIL, node=node)

    def _decide(self, *, ticked: bool) -> None:
        changes, took_ns = self._queue.decide(self._running, self._machines.snapshot, self._now_ms)
        self.outcome.decision_ns.append(took_ns)
        changes = self._get_ready(changes)
        for change in changes:
            if isinstance(change, Preempt | Resize):
                live = self._running[change.job]
                live.preemptions += 1
                self.outcome.preemptions += 1
                self._stop(live)
        for change in changes:
            if isinstance(change, Place | Resize):
                self._start(self._queue.leave(change.job), change.placement)
        self._plan_tick(calmer=ticked and not changes)

    def _get_ready(self, changes: Sequence[Change]) -> list[Change]:
        """Let those get ready who can while they train; return the changes to make at once.

        What needs devices that such a job still holds waits for the next decision.
        """
        starts = [one for one in changes if isinstance(one, Place | Resize)]
        moves = [one for one in starts if isinstance(one, Resize) and self._can_move(one, starts)]
        held: set[str] = set()
        for move in moves:
            live = self._running[move.job]
            held |= _keys(live.placement)
            self._machines.take(_ready(move.job), move.placement)
            live.target = move.placement
            ready_ms = self._now_ms + round(self._scenario.start_s * 1000)
            self._agenda.add(ready_ms, Kind.MOVE, job=move.job, generation=live.generation)
        moving = {move.job for move in moves}
        return self._unhindered([one for one in changes if one.job not in moving], held)

    def _unhindered(self, changes: Sequence[Change], held: set[str]) -> list[Change]:
        """Leave out what needs ``held`` devices, and what needs those of whoever is left out."""
        possible = list(changes)
        while True:
            left_out = [
                one
                for one in possible
                if not isinstance(one, Preempt) and not _keys(one.placement).isdisjoint(held)
            ]
            if not left_out:
                return possible
            for one in left_out:
                possible.remove(one)
                if isinstance(one, Resize):
                    held |= _keys(self._running[one.job].placement)

    def _can_move(self, change: Resize, starts: Sequence[Place | Resize]) -> bool:
        """Tell whether a job can get ready while it trains: nobody needs what it holds or gets."""
        live = self._running[change.job]
        mine = _keys(live.placement)
        unwanted = all(_keys(start.placement).isdisjoint(mine) for start in starts)
        return live.move_s is not None and unwanted and self._machines.idle(change.placement)

    def _move(self, event: Event) -> bool:
        live = self._running.get(event.job)
        if live is None or live.target is None or live.generation != event.generation:
            return False
        target = live.target
        live.preemptions += 1
        self.outcome.preemptions += 1
        self._release(live)
        self._start(live, target, start_s=live.move_s)
        return True

    def _give_up(self, live: LiveJob) -> None:
        """Take the devices back where a job got ready."""
        live.target = None
        self._queue.freed(self._machines.give_back(_ready(live.job.id)))

    def _stop(self, live: LiveJob, *, lost_s: float = 0.0) -> None:
        self._release(live, lost_s=lost_s)
        self._queue.enter(live)

    def _release(self, live: LiveJob, *, lost_s: float = 0.0) -> None:
        """Take a job's devices back, and note that it had them."""
        if live.placement is not None:
            self.outcome.stays.append(
                Stay(
                    job=live.job.id,
                    kind=live.placement.kind,
                    devices=live.placement.devices,
                    from_s=live.placed_ms / 1000,
                    until_s=self._now_ms / 1000,
                )
            )
        if live.target is not None:
            self._give_up(live)
        live.leave(self._now_ms, lost_s=lost_s)
        self._queue.freed(self._machines.give_back(live.job.id))
        del self._running[live.job.id]

    def _start(self, live: LiveJob, placement: Placement, *, start_s: float | None = None) -> None:
        """Give a job devices; it trains after ``start_s``, a start's or a restart's by default."""
        job = live.job.id
        self._machines.take(job, placement)
        self._running[job] = live
        plan = next(plan for plan in live.plans if plan.id == placement.plan)
        needed = self._machines.nodes_needed(placement.kind, len(placement.devices))
        step_s = self._scenario.real_step_s(job, plan, len(placement.nodes), needed)
        if start_s is None:
            start_s = live.restart_s if live.starts else self._scenario.start_s
        end_ms = live.place(placement, self._now_ms, step_s, start_s)
        users = self._given.users
        if users is not None and self._asks[job].runs_out:
            oom_ms = self._now_ms + round(users.notice_s * 1000)
            self._agenda.add(oom_ms, Kind.OOM, job=job, generation=live.generation)
        else:
            self._agenda.add(end_ms, Kind.FINISH, job=job, generation=live.generation)

    def _plan_tick(self, *, calmer: bool) -> None:
        """Look again soon after a change, later and later while nothing changes."""
        if not self._preemptive or not self._running:
            self._tick_ms = -1
            return
        self._calm = min(self._calm * 2, _CALMEST) if calmer else 1
        self._tick_ms = self._now_ms + round(self._scenario.tick_s * 1000) * self._calm
        self._agenda.add(self._tick_ms, Kind.TICK)

    def _alone_s(self, live: LiveJob) -> float:
        plans = self._given.model.plans(live.job.setup)
        fastest = min(plan.speed.step_s for plan in plans)
        return self._scenario.start_s + self._scenario.real_steps(live.job) * fastest

    def _story(self, live: LiveJob, alone_s: float) -> JobOutcome:
        age_ms = self._now_ms - live.arrived_ms
        open_ms = self._open_job_ms - self._open_at_arrival.pop(live.job.id)
        return JobOutcome(
            id=live.job.id,
            submit_s=live.job.submit_s,
            finish_s=self._now_ms / 1000,
            start_s=live.first_placed_ms / 1000,
            wait_s=live.waited_ms / 1000,
            alone_s=alone_s,
            device_s=live.attained_device_s,
            restart_device_s=live.restart_device_s,
            preemptions=live.preemptions,
            ooms=live.ooms,
            mean_open=open_ms / age_ms if age_ms else 1.0,
        )


def _ready(job: JobId) -> JobId:
    """Return the name under which a job holds the devices where it gets ready."""
    return JobId(f"{job}+")


def _mover(ready: JobId) -> JobId:
    return JobId(ready.removesuffix("+"))


def _keys(placement: Placement | None) -> set[str]:
    return set() if placement is None else {ref.key for ref in placement.devices}
