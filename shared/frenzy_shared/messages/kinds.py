"""Every kind of event by what it is about, and when it comes: for filters and for the reference."""

from typing import Final

from frenzy_shared.domain.transitions import PROGRESS_EVENTS, TRANSITIONS

NODE_EVENTS: Final = {
    "joined": "an agent registered",
    "up": "it may have work",
    "changed": "its devices or settings are others than before",
    "suspect": "its agent is silent: no new work",
    "lost": "its agent was silent for long, or an operator says that it is dead",
    "struck": "it refused a launch, and that counts against it",
    "draining": "no new work: an operator's drain, or too many refused launches",
}
PROJECT_EVENTS: Final = {
    "changed": "its quotas or its part in the fair share are others than before",
}
TOKEN_EVENTS: Final = {
    "created": "somebody made an API token; `scope` is the project it is for",
    "revoked": "it is void",
}
EVENT_KINDS: Final = {
    "job": (*PROGRESS_EVENTS, *dict.fromkeys(arrow.event for arrow in TRANSITIONS)),
    "project": tuple(PROJECT_EVENTS),
    "node": tuple(NODE_EVENTS),
    "token": tuple(TOKEN_EVENTS),
}
OF_PROJECTS: Final = ("job", "project")  # all others are the whole cluster's
