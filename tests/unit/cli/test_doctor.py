"""``frenzy doctor`` about a running server: what it cannot do at present, and why."""

import datetime as dt

import httpx
import pytest
from tests.support.api import node_list, ok

from frenzy.local import doctor
from frenzy.local.certificates import ensure
from frenzy.local.layout import Layout
from frenzy_shared.messages.estimate import DriftList, DriftView
from frenzy_shared.messages.http import SAFE_MODE, CheckView, ReadinessView


def server_check(cli, *wrong, status=200):
    checks = (CheckView(name="store", ok=True), *wrong)
    view = ReadinessView(status="degraded" if wrong else "ready", checks=checks)
    cli.api.on("GET", "/nodes", ok(node_list()))
    cli.api.at_root("GET", "/readyz", httpx.Response(status, content=view.encode()))
    return doctor._server()


def test_a_server_that_works(cli):
    check = server_check(cli)
    assert (check.verdict, check.remedy) == (doctor.Verdict.OK, "")


def test_safe_mode_is_told_with_what_to_do(cli):
    why = "nothing starts or changes: the store is an old copy"
    check = server_check(cli, CheckView(name=SAFE_MODE, ok=False, detail=why))
    assert check.verdict is doctor.Verdict.FAIL
    assert check.detail == f"safe mode: {why}"
    assert check.remedy == "frenzy admin reconcile"


def test_a_server_that_accepts_nothing_says_why(cli):
    wrong = CheckView(name="bus", ok=False, detail="not connected")
    check = server_check(cli, wrong, status=503)
    assert (check.verdict, check.detail) == (doctor.Verdict.FAIL, "bus: not connected")


def test_findings_are_columns_in_a_pipe_too(cli, monkeypatch):
    found = [
        doctor.Check(name="python", verdict=doctor.Verdict.OK, detail="3.11"),
        doctor.Check(name="gpus", verdict=doctor.Verdict.WARN, detail="none", remedy="buy one"),
    ]
    monkeypatch.setattr("frenzy.cli.commands.doctor.checks", lambda: iter(found))
    result = cli("doctor")
    assert result.out == "ok   python: 3.11\nwarn gpus: none\n       try: buy one\n"


@pytest.mark.parametrize(
    ("age_days", "verdict", "said"),
    [(0, "ok", "expires"), (340, "warn", "expires"), (366, "fail", "expired")],
)
def test_certificates_are_told_before_they_expire(tmp_path, age_days, verdict, said):
    layout = Layout(tmp_path)
    now = dt.datetime.now(dt.UTC)
    ensure(layout.certificates, ("127.0.0.1",), now - dt.timedelta(days=age_days))
    check = doctor._certificates(layout)
    assert (check.verdict, said in check.detail) == (verdict, True)
    assert ("frenzy up" in check.remedy) == (verdict != "ok")


def test_a_node_is_told_of_its_cluster_s_authority(tmp_path):
    layout = Layout(tmp_path)
    assert doctor._certificates(layout).detail == "none: all is on loopback"
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=3700)
    ensure(layout.joined, ("127.0.0.1",), long_ago)
    check = doctor._certificates(layout)
    assert check.verdict is doctor.Verdict.FAIL
    assert "join" in check.remedy


def test_predictions_that_drift_are_shown_with_their_numbers(cli):
    drift = DriftView(group="script/a100", runs=20, outside=9, ratio=1.314)
    cli.api.on("GET", "/drifts", ok(DriftList(drifts=(drift,))), ok(DriftList()))
    shown = cli("doctor").out
    assert "9 of the last 20 runs of script/a100 were outside their band" in shown
    assert "observed / predicted is 1.31" in shown
    assert "predictions: within their bands" in cli("doctor").out


def test_without_a_server_predictions_are_no_problem_of_their_own(cli):
    (found,) = [
        line for line in cli("doctor").out.splitlines() if line.startswith("ok   predictions")
    ]
    assert "not known" in found
