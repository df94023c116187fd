"""Secrets of projects: set, listed and removed by their people; given to jobs, shown to nobody."""

import difflib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from frenzy_gateway.callers import Caller
from frenzy_gateway.sealed import CannotOpen, Seal, opened, place_of
from frenzy_gateway.submission import check_project
from frenzy_shared.clock import Clock
from frenzy_shared.domain.ids import ProjectName, is_name
from frenzy_shared.errors import (
    FieldProblem,
    InvalidSpec,
    InvalidState,
    NotFound,
    QuotaExceeded,
    wrong_field,
)
from frenzy_shared.messages.secrets import MAX_SECRET_BYTES, SecretList, SecretView
from frenzy_shared.messages.spec import JobSpec
from frenzy_shared.state.port import StateStore
from frenzy_shared.state.secrets import SecretRecord
from frenzy_shared.times import moment

log = logging.getLogger(__name__)

_MOST: Final = 256  # of one project


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What people do with secrets. ``seal`` None: this gateway has no keys and keeps none."""

    state: StateStore
    clock: Clock
    seal: Seal | None

    async def list(self, caller: Caller, project: str) -> SecretList:
        """Show a project's secrets without their values."""
        name = self._project(caller, project)
        return SecretList(secrets=tuple(map(_view, await self.state.secrets(name))))

    async def put(self, caller: Caller, project: str, name: str, body: bytes) -> SecretView:
        """Keep a value, sealed; one of the same name is replaced.

        Raises:
            InvalidSpec: the name or the value cannot be that of a secret; never repeats the value.
            InvalidState: this gateway keeps no secrets.
            QuotaExceeded: the project has its most.
        """
        owner, seal = self._project(caller, project), self._seal()
        _check_name(name)
        value = _value(body)
        present = {secret.name for secret in await self.state.secrets(owner)}
        if name not in present and len(present) >= _MOST:
            raise QuotaExceeded(f"project {owner} has {_MOST} secrets: no project has more")
        secret = SecretRecord(
            project=owner,
            name=name,
            sealed=seal.seal(value, place_of(owner, name)),
            updated_ms=self.clock.now_ms(),
        )
        await self.state.put_secret(secret)
        log.info("%s set secret %s of project %s", caller.name, name, owner)
        return _view(secret)

    async def delete(self, caller: Caller, project: str, name: str) -> None:
        """Remove a secret; jobs that have it go on, jobs that start later fail.

        Raises:
            NotFound: there is none of that name.
        """
        owner = self._project(caller, project)
        if not await self.state.delete_secret(owner, name):
            raise NotFound(
                f"project {owner} has no secret {name[:80]!r}",
                suggestions=(f"see its secrets: frenzy secret list --project {owner}",),
            )
        log.info("%s removed secret %s of project %s", caller.name, name, owner)

    async def require(self, project: ProjectName, spec: JobSpec) -> None:
        """Raise ``InvalidSpec``, naming them, for secrets that the project does not have."""
        if not spec.secrets:
            return
        self._seal()
        present = [secret.name for secret in await self.state.secrets(project)]
        problems = tuple(_unknown(project, spec.secrets.items(), present))
        if problems:
            first = problems[0]
            raise InvalidSpec(
                f"{first.pointer.lstrip('/').replace('/', '.')}: {first.detail}",
                problems=problems,
                suggestions=(f"set it first: frenzy secret set NAME --project {project}",),
            )

    async def reseal(self) -> int:
        """Seal with the newest key what an older one sealed; return how many those were."""
        seal, count = self._seal(), 0
        for project in await self.state.secret_projects():
            for secret in await self.state.secrets(project):
                if seal.is_current(secret.sealed):
                    continue
                try:
                    value = opened(seal, secret)
                except CannotOpen as error:
                    log.warning("%s", error)
                    continue
                sealed = seal.seal(value, place_of(secret.project, secret.name))
                count += await self.state.put_secret(
                    replace(secret, sealed=sealed), replacing=secret
                )
        return count

    def _seal(self) -> Seal:
        if self.seal is None:
            raise InvalidState(
                "this server keeps no secrets: it has no key for them",
                suggestions=("set FRENZY_SECRETS_KEY of the gateway (`frenzy up` does)",),
            )
        return self.seal

    @staticmethod
    def _project(caller: Caller, project: str) -> ProjectName:
        name = check_project(project)
        caller.require(name)
        return name


def _view(secret: SecretRecord) -> SecretView:
    return SecretView(
        name=secret.name, project=secret.project, updated_at=moment(secret.updated_ms)
    )


def _unknown(
    project: ProjectName, wanted: Iterable[tuple[str, str]], present: list[str]
) -> Iterator[FieldProblem]:
    """Yield a problem for every variable whose secret is not there."""
    for variable, name in wanted:
        if name not in present:
            close = difflib.get_close_matches(name, present, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            detail = f"project {project} has no secret {name!r}{hint}"
            yield FieldProblem(pointer=f"/secrets/{variable}", detail=detail)


def _check_name(name: str) -> None:
    if not is_name(name):
        raise wrong_field("name", "use 1-63 characters of a-z, 0-9 and '-', no '-' at either end")


def _value(body: bytes) -> str:
    if not 0 < len(body) <= MAX_SECRET_BYTES:
        raise wrong_field("value", f"must have 1 to {MAX_SECRET_BYTES} bytes (has {len(body)})")
    try:
        value = body.decode()
    except UnicodeDecodeError:
        raise wrong_field("value", "must be UTF-8: it becomes an environment variable") from None
    if "\0" in value:
        raise wrong_field(
            "value", "must not hold NUL characters: it becomes an environment variable"
        )
    return value
