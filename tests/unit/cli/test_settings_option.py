"""`frenzy up --set` takes known settings only."""

import pytest

from frenzy.local.options import parse_settings
from frenzy_shared.errors import Misconfigured


def test_known_settings_are_taken():
    assert parse_settings(["FRENZY_POLICY=fifo", "FRENZY_TRACE_FILE=/a=b"]) == {
        "FRENZY_POLICY": "fifo",
        "FRENZY_TRACE_FILE": "/a=b",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FRENZY_POLICY", "not NAME=VALUE"),
        ("FRENZY_POLICI=fifo", "no setting 'FRENZY_POLICI'"),
        ("FRENZY_NATS_URL=x", "chooses FRENZY_NATS_URL itself"),
        ("PATH=/", "no setting"),
    ],
)
def test_others_are_refused(text, says):
    with pytest.raises(Misconfigured, match=says):
        parse_settings([text])


def test_a_close_name_is_offered():
    with pytest.raises(Misconfigured) as caught:
        parse_settings(["FRENZY_POLICI=fifo"])
    assert caught.value.suggestions == ("did you mean FRENZY_POLICY?",)
