"""Time travel on a real server: its clock is not ours to move, so its data grows older."""

from tests.support.valkey import ValkeyProcess


def age(server: ValkeyProcess, seconds: float) -> None:
    """Move every deadline ``seconds`` closer."""
    with server.client() as client, client.pipeline(transaction=False) as batch:
        keys = list(client.scan_iter("{frenzy}:*", count=1000))
        for key in keys:
            batch.pttl(key)
        for key, left_ms in zip(keys, batch.execute(), strict=True):
            if left_ms > 0:
                batch.pexpire(key, max(0, left_ms - round(seconds * 1000)))
        for key in ("{frenzy}:timer", "{frenzy}:finished"):
            for member, at_ms in client.zrange(key, 0, -1, withscores=True):
                batch.zadd(key, {member: at_ms - seconds * 1000})
        batch.execute()
