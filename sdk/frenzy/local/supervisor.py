"""Keep the processes of one machine's Frenzy alive, start and stop them in order."""

import asyncio
import ctypes
import errno
import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from frenzy.client import AsyncClient
from frenzy.exchange import Retry
from frenzy.local import credentials, stack
from frenzy.local.child import Child, ChildSpec, Exited
from frenzy.local.doors import doors_of
from frenzy.local.drain import attempts_alive, drain
from frenzy.local.files import read_json
from frenzy.local.fulldisk import FullDisk
from frenzy.local.layout import Layout, cannot_write
from frenzy.local.options import Options
from frenzy.local.preparing import create_streams, load_functions
from frenzy.local.processes import ProcessMark, end_all
from frenzy.local.status import ChildStatus, Phase, Status, hold
from frenzy_shared.bus.nats_users import UsersFile
from frenzy_shared.errors import FrenzyError, Unavailable

log = logging.getLogger(__name__)

Ready = Callable[[str], None]

_NODES_UP_S: Final = 60.0
_HERE: Final = frozenset({"UP", "DRAINING"})
_POLL_S: Final = 0.2
_TEND_S: Final = 0.5
_RENEW_S: Final = 6 * 3600.0
_STALE_GRACE_S: Final = 15.0
_SET_PARENT_DEATH_SIGNAL: Final = 1


class Supervisor:
    """Runs the whole until it is told to stop. Made once per process."""

    def __init__(self, layout: Layout, options: Options, ready: Ready) -> None:
        self._layout = layout
        self._ready = ready
        self._options = options
        self._children: list[Child] = []
        self._stale: tuple[ChildStatus, ...] = ()  # of an earlier supervisor, until they are ended
        self._phase = Phase.STARTING
        self._detail = ""
        self._url = ""
        self._tending: list[asyncio.Future[None]] = []
        self._me = ProcessMark.of(os.getpid())

    async def run(self, stop: asyncio.Event) -> None:
        """Start everything, keep it alive until ``stop`` is set, and stop everything.

        Raises:
            FrenzyError: something did not start; what had started is stopped again.
        """
        await self._end_stale_children()
        try:
            starting = asyncio.ensure_future(self._start())
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()  # raises what went wrong
                self._tell(Phase.READY, "")
                self._ready(self._url)
                await stopping
            else:
                await _cancel(starting)
            await self._stop()
        except BaseException as error:
            self._end_tending()
            await self._stop_children(self._children)
            self._tell(Phase.FAILED, _explain(error))
            raise

    async def _start(self) -> None:
        self._tell(Phase.STARTING, "preparing")
        secret = credentials.load_or_make(self._layout)
        plan = stack.build(self._layout, self._options, secret)
        self._url = plan.url
        await self._start_stage(plan.servers, "starting nats-server and valkey-server")
        tasks = (self._tend_bus(), self._tend_certificate())
        self._tending = [asyncio.ensure_future(task) for task in tasks]
        self._tell(Phase.STARTING, "preparing the servers")
        await create_streams(plan.nats)
        await load_functions(plan.redis_url)
        await self._start_stage(plan.services, "starting services and agents")
        self._tell(Phase.STARTING, "waiting for nodes")
        await self._wait_for_nodes(plan, secret.admin_token)

    async def _start_stage(self, specs: Sequence[ChildSpec], step: str) -> None:
        self._tell(Phase.STARTING, step)
        stage = [Child(spec, self._write) for spec in specs]
        self._children += stage
        tasks = [asyncio.create_task(_start_child(child, self._layout)) for child in stage]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                await _cancel(task)

    async def _wait_for_nodes(self, plan: stack.Stack, token: str) -> None:
        """Wait until all nodes are here; in SAFE MODE none gets work, so none is waited for."""
        wanted = set(self._options.nodes)
        authority = str(plan.nats.ca or "")
        client = AsyncClient(plan.url, token, ca=authority, retry=Retry(attempts=2))
        try:
            async with asyncio.timeout(_NODES_UP_S), client:
                while wanted:
                    with suppress(Unavailable):
                        wanted -= {n.id for n in await client.nodes() if n.state in _HERE}
                        if why := (await client.readiness()).safe_mode:
                            log.warning("SAFE MODE: %s", why)
                            return
                    await asyncio.sleep(_POLL_S if wanted else 0)
        except TimeoutError:
            raise Unavailable(
                f"not UP after {_NODES_UP_S:.0f} s: {', '.join(sorted(wanted))}",
                suggestions=(f"look into {self._layout.logs}",),
            ) from None

    async def _tend_bus(self) -> None:
        """Do for nats-server what it does not do by itself.

        It reads again who may connect, whenever a node was enrolled or revoked, and its
        certificate, whenever that was renewed; and after a full disk it is started anew.
        """
        read = [UsersFile(self._layout.bus_users).configuration]
        if self._options.listen:
            read.append(self._layout.certificate)
        known = _changed_ns(read)
        disk = FullDisk(self._layout.log("nats"), self._layout.root)
        while True:
            await asyncio.sleep(_TEND_S)
            mark = next((c.mark for c in self._children if c.spec.name == "nats"), None)
            if mark is None:
                continue
            with suppress(FileNotFoundError):
                changed = _changed_ns(read)
                if changed != known:
                    mark.send(signal.SIGHUP)
                    known = changed
            if disk.is_over():
                log.warning("starting nats again: its disk was full, and has space now")
                mark.send(signal.SIGTERM)

    async def _tend_certificate(self) -> None:
        """Renew the certificate in its last days; the gateways and nats-server take it up."""
        while True:
            await asyncio.sleep(_RENEW_S)
            try:
                doors_of(self._layout, self._options, free_port=0)
            except (FrenzyError, OSError) as error:
                log.warning("the certificate cannot be renewed: %s", error)

    async def _stop(self) -> None:
        """Stop in order: scheduling, training, agents and services, servers."""
        by_name = {child.spec.name: child for child in self._children}
        schedulers = [c for name, c in by_name.items() if name.startswith("scheduler")]
        last = [by_name[name] for name in ("nats", "valkey") if name in by_name]
        keep = self._layout.keep_jobs
        if keep.exists():
            keep.unlink()
        else:
            self._tell(Phase.STOPPING, "stopping the scheduler")
            await self._stop_children(schedulers)
            nodes = [self._layout.node(name) for name in self._options.nodes]
            if alive := attempts_alive(nodes):
                text = f"draining {len(alive)} attempts: they save a checkpoint and stop"
                self._tell(Phase.STOPPING, text)
            await drain(nodes, self._options.stop_grace_s)
        self._tell(Phase.STOPPING, "stopping services")
        await self._stop_children([c for c in self._children if c not in last])
        self._end_tending()
        self._tell(Phase.STOPPING, "stopping servers")
        await self._stop_children(last)
        self._children = []
        self._tell(Phase.STOPPED, "")

    def _end_tending(self) -> None:
        for task in self._tending:
            task.cancel()

    async def _stop_children(self, children: Sequence[Child]) -> None:
        await asyncio.gather(*(child.stop() for child in children))

    async def _end_stale_children(self) -> None:
        """End what an earlier supervisor left when it was killed; ranks are left alone."""
        earlier = Status.read(self._layout.status)
        if earlier is not None:
            self._stale = earlier.children
        # Who this is must be known before the wait, so that `frenzy down` can tell it to stop.
        self._tell(Phase.STARTING, "ending what an earlier run left" if self._stale else "starting")
        marks = [child.mark for child in self._stale if child.mark is not None]
        await asyncio.to_thread(end_all, marks, _STALE_GRACE_S)
        self._stale = ()

    def _tell(self, phase: Phase, detail: str) -> None:
        self._phase, self._detail = phase, detail
        self._write()

    def _write(self) -> None:
        own = (
            ChildStatus(
                name=child.spec.name,
                mark=child.mark,
                restarts=child.restarts,
                last_exit=child.last_exit,
            )
            for child in self._children
        )
        status = Status(
            phase=self._phase,
            detail=self._detail,
            url=self._url,
            supervisor=self._me,
            children=(*self._stale, *own),
        )
        try:
            status.write(self._layout.status)
        except OSError as error:  # a full disk must not end the keeper of everything
            log.warning("cannot write %s: %s", self._layout.status, error)


async def supervise(layout: Layout, ready: Ready) -> None:
    """Be the supervisor of a folder, as its ``options.json`` says, until SIGTERM or SIGINT.

    ``ready`` is called with the URL when everything runs.

    Raises:
        FrenzyError: something did not start, or the folder already has a supervisor.
    """
    options = Options.from_json(read_json(layout.options) or {})
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.die_with_parent:
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    with hold(layout.lock) as ours:
        if not ours:
            raise Unavailable(f"another supervisor runs in {layout.root}")
        try:
            await Supervisor(layout, options, ready).run(stop)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise cannot_write(layout.root, error) from None


def _changed_ns(paths: Sequence[Path]) -> list[int]:
    return [path.stat().st_mtime_ns for path in paths]


async def _start_child(child: Child, layout: Layout) -> None:
    name = child.spec.name
    hint = (f"look into {layout.log(name)}",)
    try:
        await child.start()
    except Exited as error:
        text = f"{error}: {_last_words(child.spec.log)}"
        raise Unavailable(text, suggestions=hint) from None
    except TimeoutError:
        seconds = child.spec.ready_within_s
        text = f"{name} is not ready after {seconds:.0f} s: {_last_words(child.spec.log)}"
        raise Unavailable(text, suggestions=hint) from None


async def _cancel(task: "asyncio.Future[None]") -> None:
    """Cancel until it is done: on Python 3.11 one cancellation can get lost in a library."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=0.2)


def _explain(error: BaseException) -> str:
    if isinstance(error, FrenzyError):
        return "\n".join((error.message, *(f"  try: {hint}" for hint in error.suggestions)))
    return f"{type(error).__name__}: {error}"


def _last_words(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    said = [line for line in lines if not line.startswith("  try: ")]  # hints follow the error
    return said[-1][:500] if said else "it wrote nothing"
