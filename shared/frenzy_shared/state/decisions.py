"""What is announced when administrators decide something: to whoever listens, and to be kept.

Each decision leaves two messages. The event says what happened and holds no secret. The kept one
has the thing as the store has it, a token's hash included: the stream ``FRENZY_DECISIONS`` holds
the newest of each for ever, so that a store which is rebuilt gets it back. No integration may read
it.
"""

from typing import Final

from frenzy_shared.domain.project import Project
from frenzy_shared.messages import subjects
from frenzy_shared.messages.codec import to_json
from frenzy_shared.state.port import Announcement, Json, OutboxMessage, TokenRecord

STORED: Final = "stored"  # in a kept message: the thing itself; None when it was removed


def project_changed(project: Project, by: str) -> Announcement:
    """Announce what is decided for a project from now on."""
    stored = to_json(project)
    return _announcement(
        "project",
        project.name,
        record={"project": project.name, **stored},
        stored=stored,
        event=OutboxMessage(
            subject=subjects.project_event("changed", project.name), type="changed", data={"by": by}
        ),
    )


def token_created(token: TokenRecord, by: str) -> Announcement:
    """Announce a new token."""
    return _token("created", token, by, to_json(token))


def token_revoked(token: TokenRecord, by: str) -> Announcement:
    """Announce that a token is void."""
    return _token("revoked", token, by, None)


def _token(kind: str, token: TokenRecord, by: str, stored: Json | None) -> Announcement:
    public = to_json(token)
    del public["secret_sha256"], public["used_ms"]
    # The token's project is what it is for, not who hears of it: tokens are the cluster's affair.
    scope = public.pop("project")
    event = OutboxMessage(subject=subjects.token_event(kind, token.id), type=kind, data={"by": by})
    record = {**public, "scope": scope}
    return _announcement("token", token.id, record=record, stored=stored, event=event)


def _announcement(
    kind: str, name: str, *, record: Json, stored: Json | None, event: OutboxMessage
) -> Announcement:
    kept = OutboxMessage(
        subject=subjects.decision(kind, name), type=event.type, data={STORED: stored}
    )
    # The event last: how far a store was is read from the newest event.
    return Announcement(record=record, messages=(kept, event))
