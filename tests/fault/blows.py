"""What chaos does to a system: blows to processes, and bad weather around them."""

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.support import points
from tests.support.deployment import Deployment
from tests.support.installed import HEAD, SUPERVISOR, Installed

SERVERS = ("nats", "valkey")
POINTS = (*points.CONTROL, *points.AGENT, *points.SHIM, *points.CANCEL)
# Kinds of blows, and how often each is chosen beside the others.
_BLOWS = {"kill": 6, "freeze": 4, "point": 3, "several": 2, "server": 2, "shim": 1, "rank": 1}
_SUPERVISOR = {"supervisor": 1, "everything": 0.3}
# Beyond the nodes' own limit and its margin. A node is lost and comes back; without schedulers
# every node ends its ranks by itself.
_LONG_FREEZE_S = 26.0
_WEATHER = {"cut": 4, "deaf": 2, "all cut": 1, "node disk": 3, "head disk": 2, "long": 2}
_LONG_CUT_S = 45.0


@dataclass(kw_only=True)
class Log:
    """What was done and when, in seconds since the start. Threads may share it."""

    blows: list[tuple[float, str]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    @property
    def counts(self) -> Counter[str]:
        return Counter(blow for _, blow in self.blows)

    def note(self, what: str, whom: str) -> None:
        self.blows.append((round(time.monotonic() - self._began, 1), f"{what} {whom}"))
        print(f"{time.strftime('%H:%M:%S')} {what} {whom}", flush=True)


@dataclass(kw_only=True)
class Striker:
    """Kills and freezes processes, one blow after the other."""

    system: Deployment
    choice: random.Random
    log: Log
    pause_s: tuple[float, float]

    def strike_until(self, end: float) -> None:
        """Strike until the monotonic clock says ``end``; then no crash point stays armed."""
        weights = {**_BLOWS, **(_SUPERVISOR if isinstance(self.system, Installed) else {})}
        while time.monotonic() < end:
            self._strike(self.choice.choices(tuple(weights), tuple(weights.values()))[0])
            time.sleep(self.choice.uniform(*self.pause_s))
        for point in POINTS:
            self.system.disarm(point)

    def _strike(self, kind: str) -> None:
        names = self.system.names
        match kind:
            case "kill":
                self._kill(self.choice.choice(names))
            case "server":
                self._kill(self.choice.choice(SERVERS))
            case "several":
                for name in self.choice.sample(names, self.choice.randint(2, len(names))):
                    self._kill(name)
            case "point":
                self.log.note("arm", point := self.choice.choice(POINTS))
                self.system.arm(point)
            case "shim":
                if shims := self.system.shims():
                    self.log.note("kill", "shim")
                    self.system.send_to(self.choice.choice(shims), signal.SIGKILL)
            case "rank":
                if ranks := self.system.ranks():
                    self.log.note("kill", "rank")
                    self.system.send_to(self.choice.choice(ranks).pid, signal.SIGKILL)
            case "freeze":
                seconds = self.choice.uniform(0.2, 4.0)
                freeze(self.system, self.log, seconds, self.choice.choice(self._freezable()))
            case "supervisor":
                self._strike_supervisor()
            case "everything":
                for name in (SUPERVISOR, *names):
                    self._kill(name)

    def _freezable(self) -> tuple[str, ...]:
        supervisor = (SUPERVISOR,) if isinstance(self.system, Installed) else ()
        return tuple(sorted({*self.system.names, *SERVERS, *supervisor}))

    def _strike_supervisor(self) -> None:
        number = self.choice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        self.log.note("kill" if number is signal.SIGKILL else "end", SUPERVISOR)
        self.system.send(SUPERVISOR, number)

    def _kill(self, name: str) -> None:
        self.log.note("kill", name)
        self.system.kill(name)


@dataclass(kw_only=True)
class Weather:
    """Partitions, full disks and long freezes, while blows go on, until ``end`` (monotonic)."""

    system: Installed
    choice: random.Random
    log: Log
    pause_s: tuple[float, float]
    end: float

    def storm(self) -> None:
        """Go on until the end, and leave everything whole."""
        while time.monotonic() + self.pause_s[1] < self.end:
            time.sleep(self.choice.uniform(*self.pause_s))
            kind = self.choice.choices(tuple(_WEATHER), tuple(_WEATHER.values()))[0]
            self._storm(kind, self.choice.choice(self.system.nodes))

    def _storm(self, kind: str, node: str) -> None:
        network = self.system.network
        match kind:
            case "cut":
                long = self.choice.random() < 0.3  # noqa: PLR2004 - a share
                seconds = _LONG_CUT_S if long else self.choice.uniform(2, 12)
                self.log.note("cut off long" if long else "cut off", node)
                network.cut(node)
                self._last(seconds)
                network.mend(node)
            case "deaf":
                self.log.note("unheard at the head", node)
                network.mute(node, HEAD)
                self._last(self.choice.uniform(2, 12))
                network.unmute(node, HEAD)
            case "all cut":
                self.log.note("cut off", HEAD)
                network.cut(HEAD)
                self._last(self.choice.uniform(2, 12))
                network.mend(HEAD)
            case "node disk":
                self._fill(node, self.choice.uniform(2, 10))
            case "head disk":
                self._fill(HEAD, self.choice.uniform(1, 6))
            case "long":
                schedulers = [n for n in self.system.names if n.startswith("scheduler")]
                names = self.choice.choice(([node], schedulers))
                freeze(self.system, self.log, _LONG_FREEZE_S, *names)

    def _last(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, self.end - time.monotonic())))

    def _fill(self, host: str, seconds: float) -> None:
        self.log.note("fill the disk of", host)
        disk = self.system.disks[host]
        until = time.monotonic() + seconds
        while time.monotonic() < until:  # again and again: others may give space back
            disk.fill()
            time.sleep(0.2)
        disk.empty()


def freeze(system: Deployment, log: Log, seconds: float, *names: str) -> None:
    for name in names:
        log.note("freeze" if seconds < _LONG_FREEZE_S else "freeze long", name)
        system.send(name, signal.SIGSTOP)
    time.sleep(seconds)
    for name in names:
        system.send(name, signal.SIGCONT)
