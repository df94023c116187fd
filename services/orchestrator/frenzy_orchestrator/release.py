"""Ranks that get ready while the attempt before theirs trains: when all wait, and when they go."""

import logging
from dataclasses import dataclass

from frenzy_orchestrator.adapters.journal import AttemptFolder
from frenzy_orchestrator.adapters.preparation import Preparation
from frenzy_orchestrator.outputs import Outputs
from frenzy_orchestrator.shim.files import write_json
from frenzy_orchestrator.shim.launch import RELEASE
from frenzy_shared import crashpoints
from frenzy_shared.messages.v1 import Phase

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What holds one attempt's ranks back from training, if anything does."""

    folder: AttemptFolder
    outputs: Outputs
    preparation: Preparation

    @property
    def news(self) -> bool:
        """Tell whether all ranks wait and nobody was told yet."""
        journal = self.folder.journal
        return journal.order.warm and not journal.warm and self.outputs.warm

    def given(self) -> bool:
        """Let ranks train that wait, once there is GO; tell whether nothing holds them back."""
        order = self.folder.journal.order
        if not order.warm:
            return True
        if order.phase is not Phase.GO:
            return False
        resume_from = self.preparation.inputs(self.folder).resume_from
        try:
            write_json(self.folder.path / RELEASE, {"resume_from": resume_from})
        except OSError as error:  # a full disk, for example: tried again at the next look
            log.error("%s cannot go on: %s", self.folder.path.name, error)  # noqa: TRY400 - not a bug
            return False
        crashpoints.reach("agent.after-release")
        return True
