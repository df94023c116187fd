# ruff: noqa: INP001 - a script, copied to where it runs
"""Follow events: a durable subscriber of the bus, in plain nats-py.

    python follow.py FOLDER [COUNT]

FOLDER is what ``frenzy admin integration create`` wrote; this file is in it too, as an example to
start from. It needs nats-py and nkeys, and nothing of Frenzy. Each event is one line of JSON on
standard output; after COUNT of them it ends.
"""

import asyncio
import json
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import TimeoutError  # noqa: A004 - the client's own

Handler = Callable[[dict[str, Any]], None]


async def follow(folder: Path, handle: Handler, count: int | None = None) -> None:
    """Hand every event to ``handle``, in order, until ``count`` were.

    An event is acknowledged after ``handle`` returns: one that was not comes again, perhaps after
    others, so handle it by its ``id``. The server remembers the place while nobody is here, and
    this comes back by itself when the server was away.

    Raises:
        PermissionError: the server refuses the key: it was revoked or rotated.
    """
    client, refused = Client(), asyncio.Event()
    tasks = {
        asyncio.ensure_future(_pull(client, refused, folder, handle, count)),
        asyncio.ensure_future(refused.wait()),
    }
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(tasks, timeout=1)
    shut_out = refused.is_set()  # before this side closes, which looks the same
    await client.close()
    if shut_out:
        raise PermissionError("the server refuses the key: it was revoked or rotated")
    for task in done:
        task.result()  # raises what went wrong


async def _pull(
    client: Client, refused: asyncio.Event, folder: Path, handle: Handler, count: int | None
) -> None:
    about = json.loads((folder / "integration.json").read_text(encoding="utf-8"))
    await _connect(client, refused, folder, about)
    pulled = await client.jetstream().pull_subscribe_bind(about["durable"], about["stream"])
    while count is None or count > 0:
        try:
            messages = await pulled.fetch(min(count or 10, 10), timeout=5)
        except TimeoutError:
            continue  # nothing new
        for message in messages:
            handle(json.loads(message.data))
            await message.ack_sync()
        count = None if count is None else count - len(messages)


async def _connect(
    client: Client, refused: asyncio.Event, folder: Path, about: dict[str, Any]
) -> None:
    async def say(error: Exception) -> None:
        text = str(error) or type(error).__name__
        sys.stderr.write(f"{text}\n")
        if "authorization" in text.lower():  # trying again cannot help
            refused.set()

    async def closed() -> None:
        refused.set()

    authority = folder / "ca.pem"
    await client.connect(
        about["url"],
        name=about["durable"],
        nkeys_seed=str(folder / "key.nk"),
        inbox_prefix=about["inbox_prefix"],  # the key may listen below this one only
        tls=ssl.create_default_context(cafile=str(authority)) if authority.exists() else None,
        max_reconnect_attempts=-1,
        error_cb=say,
        closed_cb=closed,
    )


def _print(event: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(event)}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> str | None:
    """Follow as the command line says; return what went wrong."""
    if len(arguments) not in (1, 2):
        return "usage: python follow.py FOLDER [COUNT]"
    count = int(arguments[1]) if len(arguments) > 1 else None
    try:
        asyncio.run(follow(Path(arguments[0]), _print, count))
    except (PermissionError, FileNotFoundError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
