import hashlib

import pytest

from frenzy_shared.auth import ApiToken, Role, check_token, new_token, parse_token, token_record
from frenzy_shared.errors import Unauthenticated


def test_a_new_token_reads_back_and_its_secret_stays_out_of_reprs():
    token = new_token()
    assert parse_token(token.text) == token
    assert len(bytes.fromhex(token.secret)) * 8 == 256
    assert token.secret not in repr(token)


def test_two_tokens_differ():
    assert new_token().secret != new_token().secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        "frz_",
        "frz_0123456789ab_",
        "frz_0123456789ab_" + "g" * 64,
        "x" + ApiToken(id="0" * 12, secret="0" * 64).text,
        ApiToken(id="0" * 12, secret="0" * 64).text + "\n",
        ApiToken(id="*" * 12, secret="0" * 64).text,
    ],
)
def test_other_texts_are_not_tokens(text):
    assert parse_token(text) is None


def test_the_record_keeps_only_the_hash():
    token = new_token()
    record = token_record(token, role=Role.VIEWER, project="p", name="ci", created_ms=5)
    assert record.secret_sha256 == hashlib.sha256(token.secret.encode()).hexdigest()
    assert token.secret not in str(record)


def test_unknown_and_wrong_tokens_get_the_same_answer():
    token, other = new_token(), new_token()
    record = token_record(other, role=Role.ADMIN, project="*", name="a", created_ms=0)
    with pytest.raises(Unauthenticated) as unknown:
        check_token(token, None, 0)
    with pytest.raises(Unauthenticated) as wrong:
        check_token(token, record, 0)
    assert str(unknown.value) == str(wrong.value)
    assert token.secret not in str(wrong.value)


def test_expiry_is_the_first_moment_that_is_refused():
    token = new_token()
    record = token_record(
        token, role=Role.ADMIN, project="*", name="ci", created_ms=0, expires_ms=100
    )
    assert check_token(token, record, 99) is record
    with pytest.raises(Unauthenticated, match="expired"):
        check_token(token, record, 100)


def test_roles_include_the_ones_below():
    assert [[a.includes(b) for b in Role] for a in Role] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
