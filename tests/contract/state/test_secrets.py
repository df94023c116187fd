"""Secrets as the store keeps them: by project and name, whole, and replaced only as asked."""

from dataclasses import replace

from frenzy_shared.domain.ids import ProjectName
from frenzy_shared.state.secrets import SecretRecord

VISION, AUDIO = ProjectName("vision"), ProjectName("audio")
HUB = SecretRecord(project=VISION, name="hub-token", sealed="v1.k1.AAAA", updated_ms=1)


async def test_secrets_come_back_by_project_and_name(store):
    assert await store.secrets(VISION) == ()
    other = replace(HUB, name="a-key", sealed='v1."quoted"\n')
    for secret in (HUB, other, replace(HUB, project=AUDIO)):
        assert await store.put_secret(secret)
    assert await store.secrets(VISION) == (other, HUB)
    assert await store.secrets(AUDIO) == (replace(HUB, project=AUDIO),)
    assert await store.secret_projects() == (AUDIO, VISION)


async def test_a_secret_set_again_replaces_the_old_one(store):
    await store.put_secret(HUB)
    newer = replace(HUB, sealed="v1.k1.BBBB", updated_ms=2)
    assert await store.put_secret(newer)
    assert await store.secrets(VISION) == (newer,)


async def test_a_replacement_takes_the_place_of_what_was_read_only(store):
    resealed = replace(HUB, sealed="v1.k2.AAAA")
    assert not await store.put_secret(resealed, replacing=HUB)
    assert await store.secrets(VISION) == ()
    await store.put_secret(HUB)
    assert await store.put_secret(resealed, replacing=HUB)
    newer = replace(HUB, sealed="v1.k1.BBBB", updated_ms=2)
    await store.put_secret(newer)
    assert not await store.put_secret(resealed, replacing=HUB)
    assert await store.secrets(VISION) == (newer,)


async def test_a_project_without_its_last_secret_is_not_listed(store):
    await store.put_secret(HUB)
    assert not await store.delete_secret(AUDIO, "hub-token")
    assert not await store.delete_secret(VISION, "other")
    assert await store.delete_secret(VISION, "hub-token")
    assert not await store.delete_secret(VISION, "hub-token")
    assert (await store.secrets(VISION), await store.secret_projects()) == ((), ())


def test_what_is_sealed_shows_in_no_repr():
    assert "AAAA" not in repr(HUB)
