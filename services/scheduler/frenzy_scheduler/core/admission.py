"""Quotas while devices are handed out: limits, a project's own share, borrowing, giving back.

Devices up to ``nominal`` are a project's own; beyond, it borrows what nobody else is owed. A cycle
hands out in two rounds: ``OWN`` serves owners from their shares, also with what borrowers hold if
the policy stops jobs; ``ANY`` serves everybody up to the limits, and keeps idle what owners that
still wait are owed. What a job holds already it may keep, even above a limit that came later.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.domain.plan import ResourcePlan
from frenzy_shared.domain.project import Project

# A waiting job of an owner: its project, its plans, and which of them the cluster could serve.
Wish = tuple[ProjectName, Iterable[ResourcePlan], Callable[[ResourcePlan], bool]]


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
        self._accounts = {project.name: _Account(project) for project in projects}
        self._owed: dict[tuple[ProjectName, str], int] = {}
        self.free_for_all = not self._accounts  # there is nothing to check: nobody has a quota
        for holding in held:
            self._account(holding.project).add(holding.kind, holding.count, jobs=1)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds in which to hand out."""
        shared = any(account.owns for account in self._accounts.values())
        return (Round.OWN, Round.ANY) if shared else (Round.ANY,)

    def copy(self) -> "Ledger":
        """Return a ledger that can be edited without touching this one."""
        twin = Ledger()
        twin._accounts = {name: account.copy() for name, account in self._accounts.items()}
        twin.free_for_all = self.free_for_all
        return twin

    def use(self, project: ProjectName, kind: str) -> int:
        """Return the devices of a kind that a project holds."""
        return self._account(project).use.get(kind, 0)

    def owns(self, project: ProjectName) -> bool:
        """Tell whether a project has a share of its own."""
        account = self._accounts.get(project)
        return account is not None and account.owns

    def borrows(self, project: ProjectName, kind: str) -> bool:
        """Tell whether owners could ask a project to give devices of a kind back."""
        if Round.OWN not in self.rounds or not self.use(project, kind):
            return False
        return self._account(project).own_left(kind) < 0

    def fits(
        self, project: ProjectName, plan: ResourcePlan, held: ResourcePlan | None = None
    ) -> bool:
        """Tell whether the limits allow a plan in place of ``held``."""
        return self.free_for_all or not self._account(project).is_over(plan, held)

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
        if self.free_for_all:
            return True
        account = self._account(project)
        if account.is_over(plan, held):
            return False
        if account.is_own(plan, held):
            return True
        if turn is Round.OWN or not self._owed:
            return turn is Round.ANY
        more = plan.device_count - _same(held, plan.kind)
        return more <= 0 or free - more >= self._owed_to_others(project, plan.kind)

    def charge(
        self, project: ProjectName, plan: ResourcePlan | None, held: ResourcePlan | None = None
    ) -> None:
        """Book that a job has ``plan`` now, and no longer ``held``; None: no devices."""
        if self.free_for_all:
            return
        account = self._account(project)
        if held is not None:
            account.add(held.kind, -held.device_count, jobs=-1)
        if plan is not None:
            account.add(plan.kind, plan.device_count, jobs=1)

    def owe(self, waiting: Iterable[Wish]) -> None:
        """Note what owners are owed after their round, by the jobs of theirs that still wait."""
        self._owed = {}
        left: dict[tuple[ProjectName, str], int] = {}
        for project, plans, could_be in waiting:
            account = self._account(project)
            widest: dict[str, int] = {}
            for plan in plans:
                kind, count = plan.kind, plan.device_count
                if (project, kind) not in left:
                    left[project, kind] = max(account.own_left(kind), 0)
                unclaimed = left[project, kind] - self._owed.get((project, kind), 0)
                wanted = unclaimed > 0 and widest.get(kind, 0) < count <= left[project, kind]
                if wanted and not account.is_over(plan, None) and could_be(plan):
                    widest[kind] = count
            for kind, count in widest.items():
                owed = self._owed.get((project, kind), 0)
                self._owed[project, kind] = min(owed + count, left[project, kind])

    def exceeded(self, project: ProjectName, plans: Iterable[ResourcePlan]) -> str:
        """Say which limit keeps a job from all of its plans; "" when some plan is within them."""
        if self.free_for_all:
            return ""
        hits = [(plan.device_count, self._account(project).hit(plan)) for plan in plans]
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

    def _account(self, project: ProjectName) -> "_Account":
        account = self._accounts.get(project)
        if account is None:
            account = self._accounts[project] = _Account(Project(name=project))
        return account

    def _owed_to_others(self, project: ProjectName, kind: str) -> int:
        return sum(
            count
            for (owner, owed), count in self._owed.items()
            if owed == kind and owner != project
        )


@dataclass(slots=True)
class _Account:
    """What one project holds, beside what it may."""

    project: Project
    use: dict[str, int] = field(default_factory=dict[str, int])
    total: int = 0  # devices of all kinds
    jobs: int = 0
    owns: bool = field(init=False)  # any devices at all

    def __post_init__(self) -> None:
        self.owns = self.project.has_share

    def copy(self) -> "_Account":
        return _Account(self.project, dict(self.use), self.total, self.jobs)

    def add(self, kind: str, count: int, *, jobs: int) -> None:
        self.use[kind] = self.use.get(kind, 0) + count
        self.total += count
        self.jobs += jobs

    def is_over(self, plan: ResourcePlan, held: ResourcePlan | None) -> bool:
        """Tell whether a plan in place of ``held`` would exceed a limit."""
        project = self.project
        most, limit = project.max_running_jobs, project.devices.limit
        if most is not None and held is None and self.jobs >= most:
            return True
        more = plan.device_count - (held.device_count if held is not None else 0)
        if limit is not None and more > 0 and self.total + more > limit:
            return True
        own = project.kinds.get(plan.kind)
        if own is None or own.limit is None:
            return False
        more = plan.device_count - _same(held, plan.kind)
        return more > 0 and self.use.get(plan.kind, 0) + more > own.limit

    def is_own(self, plan: ResourcePlan, held: ResourcePlan | None) -> bool:
        """Tell whether with a plan in place of ``held`` nothing of its kind is borrowed."""
        if not self.owns:
            return False
        nominal, own = self.project.devices.nominal, self.project.kinds.get(plan.kind)
        share = own.nominal if own is not None else None
        if nominal is None and share is None:
            return False
        more = plan.device_count - (held.device_count if held is not None else 0)
        if nominal is not None and self.total + more > nominal:
            return False
        used = self.use.get(plan.kind, 0) + plan.device_count - _same(held, plan.kind)
        return share is None or used <= share

    def own_left(self, kind: str) -> int:
        """Return how many devices of a kind are its own and not used; -n when n are borrowed."""
        used, own = self.use.get(kind, 0), self.project.kinds.get(kind)
        left: list[int] = []
        if self.project.devices.nominal is not None:
            left.append(self.project.devices.nominal - self.total)
        if own is not None and own.nominal is not None:
            left.append(own.nominal - used)
        return min(left, default=-used)

    def hit(self, plan: ResourcePlan) -> str:
        """Return the limit that a plan would exceed, in words; "" when there is none."""
        if not self.is_over(plan, None):
            return ""
        most = self.project.max_running_jobs
        if most is not None and self.jobs >= most:
            return f"runs {self.jobs} jobs; its quota is {most}"
        used, own = self.use.get(plan.kind, 0), self.project.kinds.get(plan.kind)
        limit, what = (own.limit if own is not None else None), f" x {plan.kind}"
        if limit is None or used + plan.device_count <= limit:
            used, limit, what = self.total, self.project.devices.limit, " GPUs"
        needs = f"plan {plan.id} needs {plan.device_count} more"
        return f"uses {used} of at most {limit}{what}; {needs}"


def _same(held: ResourcePlan | None, kind: str) -> int:
    """Return how many devices of a kind a job gives up with ``held``."""
    return held.device_count if held is not None and held.kind == kind else 0
