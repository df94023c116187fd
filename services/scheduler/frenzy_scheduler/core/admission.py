"""Quotas while devices are handed out: limits, a project's own share, borrowing, giving back.

Devices up to ``nominal`` are a project's own; beyond, it borrows what nobody else is owed. A cycle
hands out in two rounds: ``OWN`` serves owners from their shares, also with what borrowers hold if
the policy stops jobs; ``ANY`` serves everybody up to the limits, and keeps idle what owners that
still wait are owed. What a job holds already it may keep, even above a limit that came later.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.domain.project import Project


class Round(StrEnum):
    """Which of a cycle's two rounds hands out."""

    OWN = "own"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices that one job of a project holds."""

    project: ProjectName
    kind: str
    count: int


class Ledger:
    """What projects hold, by kind. A cycle edits its own copy as it hands out."""

    def __init__(self, projects: Iterable[Project] = (), held: Iterable[Holding] = ()) -> None:
        self._projects = {project.name: project for project in projects}
        self._use: dict[ProjectName, dict[str, int]] = {}
        self._jobs: dict[ProjectName, int] = defaultdict(int)
        self._owed: dict[tuple[ProjectName, str], int] = {}
        for holding in held:
            self._add(holding.project, holding.kind, holding.count)
            self._jobs[holding.project] += 1

    @property
    def free_for_all(self) -> bool:
        """Tell whether there is nothing to check: no project has a quota."""
        return not self._projects

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds in which to hand out."""
        shared = any(project.has_share for project in self._projects.values())
        return (Round.OWN, Round.ANY) if shared else (Round.ANY,)

    def copy(self) -> "Ledger":
        """Return a ledger that can be edited without touching this one."""
        twin = Ledger(self._projects.values())
        twin._use = {project: dict(kinds) for project, kinds in self._use.items()}
        twin._jobs = self._jobs.copy()
        return twin

    def use(self, project: ProjectName, kind: str) -> int:
        """Return the devices of a kind that a project holds."""
        return self._use.get(project, {}).get(kind, 0)

    def borrows(self, project: ProjectName, kind: str) -> bool:
        """Tell whether owners could ask a project to give devices of a kind back."""
        if Round.OWN not in self.rounds or not self.use(project, kind):
            return False
        return self._own_left(project, kind) < 0

    def fits(
        self, project: ProjectName, plan: ResourcePlan, held: ResourcePlan | None = None
    ) -> bool:
        """Tell whether the limits allow a plan in place of ``held``."""
        return not self._limit_hit(project, plan, held)

    def permits(
        self,
        project: ProjectName,
        plan: ResourcePlan,
        turn: Round,
        *,
        free: int,
        held: ResourcePlan | None = None,
    ) -> bool:
        """Tell whether a job may get a plan's devices, in place of those of ``held``.

        ``free`` counts devices of the plan's kind that could be handed out now, those of ``held``
        not among them.
        """
        if not self._projects:
            return True
        if self._limit_hit(project, plan, held):
            return False
        own = self._is_own(project, plan, held)
        if own or turn is Round.OWN:
            return own
        more = _change(plan, held, plan.kind)
        return free - more >= self._owed_to_others(project, plan.kind) or more <= 0

    def charge(
        self, project: ProjectName, plan: ResourcePlan | None, held: ResourcePlan | None = None
    ) -> None:
        """Book that a job has ``plan`` now, and no longer ``held``; None: no devices."""
        if not self._projects:
            return
        if held is not None:
            self._add(project, held.kind, -held.device_count)
        if plan is not None:
            self._add(project, plan.kind, plan.device_count)
        self._jobs[project] += (plan is not None) - (held is not None)

    def owe(self, waiting: Iterable[tuple[ProjectName, Iterable[ResourcePlan]]]) -> None:
        """Note what owners are owed after their round, by the jobs of theirs that still wait.

        ``waiting`` has each job's plans that the cluster could ever serve.
        """
        wanted: dict[tuple[ProjectName, str], int] = defaultdict(int)
        for project, plans in waiting:
            widest: dict[str, int] = {}
            for plan in plans:
                if self._is_own(project, plan, None) and not self._limit_hit(project, plan, None):
                    widest[plan.kind] = max(widest.get(plan.kind, 0), plan.device_count)
            for kind, count in widest.items():
                wanted[project, kind] += count
        self._owed = {
            (project, kind): min(count, max(self._own_left(project, kind), 0))
            for (project, kind), count in wanted.items()
        }

    def exceeded(self, project: ProjectName, plans: Iterable[ResourcePlan]) -> str:
        """Say which limit keeps a job from all of its plans; "" when some plan is within them."""
        hits = [(plan.device_count, self._limit_hit(project, plan, None)) for plan in plans]
        if not hits or not all(text for _, text in hits):
            return ""
        return f"project {project} {min(hits)[1]}"

    def kept(self, project: ProjectName, plan: ResourcePlan, idle: int) -> str:
        """Say for which owners idle devices are kept that the plan would borrow; "" if for none."""
        if idle < plan.device_count or self.permits(project, plan, Round.ANY, free=idle):
            return ""
        owners = sorted(
            f"{owner} ({count})"
            for (owner, kind), count in self._owed.items()
            if kind == plan.kind and owner != project and count
        )
        return (
            f"{idle} x {plan.kind} are idle but kept for their owners: project {', '.join(owners)}"
        )

    # -- inside -------------------------------------------------------------------------------

    def _add(self, project: ProjectName, kind: str, count: int) -> None:
        kinds = self._use.setdefault(project, {})
        kinds[kind] = kinds.get(kind, 0) + count

    def _limit_hit(
        self, project: ProjectName, plan: ResourcePlan, held: ResourcePlan | None
    ) -> str:
        """Return the limit that a plan would exceed, in words; "" when there is none."""
        record = self._projects.get(project)
        if record is None:
            return ""
        running, most = self._jobs[project], record.max_running_jobs
        if held is None and most is not None and running >= most:
            return f"runs {running} jobs; its quota is {most}"
        for kind, limit in ((plan.kind, _limit(record, plan.kind)), ("", record.devices.limit)):
            more = _change(plan, held, kind)
            used = self._used(project, kind)
            if limit is not None and more > 0 and used + more > limit:
                what = f" x {kind}" if kind else " GPUs"
                return f"uses {used} of at most {limit}{what}; plan {plan.id} needs {more} more"
        return ""

    def _is_own(self, project: ProjectName, plan: ResourcePlan, held: ResourcePlan | None) -> bool:
        """Tell whether the project holds nothing borrowed of the plan's kind with it."""
        shares = self._shares(project, plan.kind)
        return bool(shares) and all(
            self._used(project, kind) + _change(plan, held, kind) <= share
            for kind, share in shares.items()
        )

    def _own_left(self, project: ProjectName, kind: str) -> int:
        """Return how many devices of a kind are the project's own and not used; -n: n borrowed."""
        shares = self._shares(project, kind)
        left = [share - self._used(project, which) for which, share in shares.items()]
        return min(left, default=-self._used(project, kind))

    def _shares(self, project: ProjectName, kind: str) -> dict[str, int]:
        """Return what is the project's own of a kind, and for "" of all kinds together."""
        record = self._projects.get(project)
        if record is None:
            return {}
        shares = {kind: _share(record, kind), "": record.devices.nominal}
        return {which: share for which, share in shares.items() if share is not None}

    def _used(self, project: ProjectName, kind: str) -> int:
        """Return the devices of a kind that a project holds; of all kinds for ""."""
        kinds = self._use.get(project, {})
        return kinds.get(kind, 0) if kind else sum(kinds.values())

    def _owed_to_others(self, project: ProjectName, kind: str) -> int:
        return sum(
            count
            for (owner, owed), count in self._owed.items()
            if owed == kind and owner != project
        )


def _change(plan: ResourcePlan, held: ResourcePlan | None, kind: str) -> int:
    """Return by how many devices of a kind a job grows; of all kinds for ""."""
    before = held.device_count if held is not None and kind in ("", held.kind) else 0
    return plan.device_count - before


def _limit(project: Project, kind: str) -> int | None:
    return project.kinds[kind].limit if kind in project.kinds else None


def _share(project: Project, kind: str) -> int | None:
    return project.kinds[kind].nominal if kind in project.kinds else None
