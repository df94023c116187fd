"""Tell on stderr what becomes of a job while somebody looks at its log, which may be silent."""

import logging
import threading
from types import TracebackType
from typing import Final, Self

from frenzy.cli import output, show
from frenzy.errors import FrenzyError
from frenzy.job import Job
from frenzy_shared.domain.job import TERMINAL, JobState
from frenzy_shared.messages.http import JobView

log = logging.getLogger(__name__)

_POLL_S: Final = 1.0
_LAST_REQUEST_S: Final = 1.0  # a request on its way may end; nobody waits long for it


class News:
    """Says a job's state and why it waits, once per change, for as long as it is entered."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._said: object = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="job news", daemon=True)

    def __enter__(self) -> Self:
        self._tell(self._job.view)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(_LAST_REQUEST_S)

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S) and not self._job.done:
            try:
                view = self._job.refresh()
            except FrenzyError as error:  # the log's own connection decides whether that is fatal
                log.debug("no news of %s: %s", self._job.id, error)
                continue
            if not self._stop.is_set():
                self._tell(view)

    def _tell(self, view: JobView) -> None:
        change = (view.attempt, view.state, view.pending)
        if change != self._said and (text := sentence(view)):
            self._said = change
            output.err().print(output.printable(text), style="dim", markup=False)


def sentence(view: JobView) -> str:
    """Return one line about a job; "" once it is over: its outcome is said elsewhere."""
    return "" if view.state in TERMINAL else f"{view.id} {view.state} {_detail(view)}".rstrip()


def _detail(view: JobView) -> str:
    where = show.devices(view)
    match view.state:
        case JobState.RESERVED:
            return f"{where}: the nodes fetch its files"
        case JobState.STARTING:
            return f"{where}: starting its ranks"
        case JobState.RUNNING:
            loading = "" if view.last_step is not None else "; loading the model takes some seconds"
            return f"on {where}{loading}"
        case _:
            reason, message = view.reason, view.message
            if view.pending is not None:
                reason, message = view.pending.reason, view.pending.message
            return " ".join(filter(None, (f"({reason})" if reason else "", message)))
