"""What administrators do to a running cluster: ``Client.admin`` and ``AsyncClient.admin``."""

from collections.abc import AsyncIterator, Iterator, Sequence

from frenzy import operations
from frenzy.exchange import Retry
from frenzy.transport import AsyncTransport, Transport
from frenzy_shared.messages.estimate import DriftView
from frenzy_shared.messages.http import DeadLetterView, NodeView, TokenInfo, TokenView
from frenzy_shared.messages.v1 import Reconciliation


class Admin:
    """Nodes taken out of service, tokens, dead letters, and a store that is put right."""

    def __init__(self, io: Transport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    def drain(self, node: str, *, reason: str = "", deadline_s: float | None = None) -> NodeView:
        """Give a node no new work; with a deadline, what runs there then goes on elsewhere."""
        return self._io.run(
            operations.drain(self._retry, node, reason=reason, deadline_s=deadline_s)
        )

    def undrain(self, node: str) -> NodeView:
        """Let a drained node have work again."""
        return self._io.run(operations.undrain(self._retry, node))

    def confirm_dead(self, node: str) -> NodeView:
        """Say that nothing runs on a silent node; its jobs start elsewhere at once."""
        return self._io.run(operations.confirm_dead(self._retry, node))

    def forget_node(self, node: str) -> None:
        """Remove the record of a node that is gone for ever.

        Raises:
            NotFound: there is none.
            InvalidState: it is not LOST, or something of it is still held.
        """
        self._io.run(operations.forget_node(self._retry, node))

    def create_token(
        self,
        *,
        name: str,
        role: str = "submitter",
        project: str = "default",
        expires_in_s: float | None = None,
    ) -> TokenView:
        """Make an API token; its secret is in the answer and nowhere else.

        ``role`` is viewer, submitter or admin; ``project`` may be "*", all of them.
        ``expires_in_s`` None: never.

        Raises:
            InvalidSpec: naming the wrong field.
            Forbidden: your own token does not reach so far.
        """
        return self._io.run(
            operations.create_token(
                self._retry, role=role, project=project, name=name, expires_in_s=expires_in_s
            )
        )

    def drifts(self) -> tuple[DriftView, ...]:
        """Return where predictions of memory have lately left their bands; anybody may ask."""
        return self._io.run(operations.drifts(self._retry))

    def tokens(self) -> tuple[TokenInfo, ...]:
        """Return the tokens of the projects that you administer, oldest first, without secrets."""
        return self._io.run(operations.tokens(self._retry))

    def revoke_token(self, token: str) -> None:
        """Make a token void, by its id: at once, everywhere.

        Raises:
            NotFound: there is none, or you do not administer its project.
            InvalidState: it is a node's (revoke the node), or the operator's own.
        """
        self._io.run(operations.revoke_token(self._retry, token))

    def reconcile(self, *, apply: bool = False, dead: Sequence[str] = ()) -> Reconciliation:
        """Return what a store in SAFE MODE says wrongly; with ``apply`` put it right.

        ``dead`` names silent nodes that are switched off: what they ran starts elsewhere.
        """
        return self._io.run(operations.reconcile(self._retry, apply=apply, dead=dead))

    def dead_letters(self) -> Iterator[DeadLetterView]:
        """Yield the messages that services gave up, oldest first."""
        after: int | None = 0
        while after is not None:
            page = self._io.run(operations.dead_letters(self._retry, after=after))
            yield from page.letters
            after = page.next_after

    def replay_dead_letter(self, letter: int) -> DeadLetterView:
        """Publish a dead letter's message again where it came from."""
        return self._io.run(operations.settle_dead_letter(self._retry, letter, how="replay"))

    def drop_dead_letter(self, letter: int) -> DeadLetterView:
        """Throw a dead letter away."""
        return self._io.run(operations.settle_dead_letter(self._retry, letter, how="drop"))


class AsyncAdmin:
    """``Admin`` for asyncio: the same methods, awaited."""

    def __init__(self, io: AsyncTransport, retry: Retry) -> None:
        self._io = io
        self._retry = retry

    async def drain(
        self, node: str, *, reason: str = "", deadline_s: float | None = None
    ) -> NodeView:
        """Give a node no new work; with a deadline, what runs there then goes on elsewhere."""
        return await self._io.run(
            operations.drain(self._retry, node, reason=reason, deadline_s=deadline_s)
        )

    async def undrain(self, node: str) -> NodeView:
        """Let a drained node have work again."""
        return await self._io.run(operations.undrain(self._retry, node))

    async def confirm_dead(self, node: str) -> NodeView:
        """Say that nothing runs on a silent node; its jobs start elsewhere at once."""
        return await self._io.run(operations.confirm_dead(self._retry, node))

    async def forget_node(self, node: str) -> None:
        """Remove the record of a node that is gone for ever."""
        await self._io.run(operations.forget_node(self._retry, node))

    async def create_token(
        self,
        *,
        name: str,
        role: str = "submitter",
        project: str = "default",
        expires_in_s: float | None = None,
    ) -> TokenView:
        """Make an API token; see ``Admin.create_token``."""
        return await self._io.run(
            operations.create_token(
                self._retry, role=role, project=project, name=name, expires_in_s=expires_in_s
            )
        )

    async def drifts(self) -> tuple[DriftView, ...]:
        """Return where predictions of memory have lately left their bands; anybody may ask."""
        return await self._io.run(operations.drifts(self._retry))

    async def tokens(self) -> tuple[TokenInfo, ...]:
        """Return the tokens of the projects that you administer, oldest first, without secrets."""
        return await self._io.run(operations.tokens(self._retry))

    async def revoke_token(self, token: str) -> None:
        """Make a token void, by its id; see ``Admin.revoke_token``."""
        await self._io.run(operations.revoke_token(self._retry, token))

    async def reconcile(self, *, apply: bool = False, dead: Sequence[str] = ()) -> Reconciliation:
        """Return what a store in SAFE MODE says wrongly; with ``apply`` put it right.

        ``dead`` names silent nodes that are switched off: what they ran starts elsewhere.
        """
        return await self._io.run(operations.reconcile(self._retry, apply=apply, dead=dead))

    async def dead_letters(self) -> AsyncIterator[DeadLetterView]:
        """Yield the messages that services gave up, oldest first."""
        after: int | None = 0
        while after is not None:
            page = await self._io.run(operations.dead_letters(self._retry, after=after))
            for letter in page.letters:
                yield letter
            after = page.next_after

    async def replay_dead_letter(self, letter: int) -> DeadLetterView:
        """Publish a dead letter's message again where it came from."""
        return await self._io.run(operations.settle_dead_letter(self._retry, letter, how="replay"))

    async def drop_dead_letter(self, letter: int) -> DeadLetterView:
        """Throw a dead letter away."""
        return await self._io.run(operations.settle_dead_letter(self._retry, letter, how="drop"))
