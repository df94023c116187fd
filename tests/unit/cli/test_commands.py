"""Planning and submitting against a scripted server: output, formats, exit codes."""

import json
from dataclasses import replace

import pytest
import yaml
from tests.support.api import (
    SPEC,
    job_view,
    log,
    node_list,
    ok,
    plan,
    plans,
    refused_plan,
    sse,
)

from frenzy.cli.app import COMMANDS, build
from frenzy_shared.messages.http import (
    NodeList,
    PendingView,
    QueueView,
)


@pytest.fixture
def job_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return str(path)


@pytest.fixture
def planned(cli):
    cli.api.on("POST", "/plans", ok(plans(plan(), refused=[refused_plan("")])))
    cli.api.on("GET", "/nodes", ok(node_list()))
    return cli


def test_every_command_exists_and_says_what_the_list_says():
    from importlib import import_module

    build(COMMANDS)
    for name, (where, line) in COMMANDS.items():
        module, _, function = where.partition(":")
        command = getattr(import_module(f"frenzy.cli.commands.{module}"), function)
        group = getattr(command, "registered_callback", None)
        documented = group.callback if group else command
        assert documented.__doc__.splitlines()[0] == line, name


def test_plan_shows_memory_and_why(planned, job_file):
    result = planned("plan", "-f", job_file)
    assert result.code == 0
    assert result.err == ""
    for text in ("1 x emulated-a100-40", "ZeRO-2", "100 MiB", "of 256 MiB", "optimizer 75.0 MiB"):
        assert text in result.out
    assert "the smallest card that fits" in result.out
    assert "needs 2.1 GiB" in result.out
    assert "\x1b" not in result.out


def under(cli, policy):
    cli.api.on("GET", "/queue", ok(QueueView(policy=policy, total=0, entries=())))


def test_plan_says_how_many_plans_it_leaves_out(cli, job_file):
    under(cli, "has")
    many = [replace(plan(devices=count), id=f"p{count}") for count in (1, 2, 3, 4, 5)]
    cli.api.on("POST", "/plans", ok(plans(*many)))
    cli.api.on("GET", "/nodes", ok(node_list()))
    short = cli("plan", "-f", job_file).out
    assert "2 more: frenzy plan -o wide" in short
    assert "the first plan whose GPUs are idle" in short
    assert "5 x emulated-a100-40" not in short
    assert "5 x emulated-a100-40" in cli("plan", "-f", job_file, "-o", "wide").out


def test_plan_names_the_plan_that_the_scheduler_tries_first(cli, job_file):
    under(cli, "has")
    small = replace(plan(kind="emulated-a100-10"), id="small")
    cli.api.on("POST", "/plans", ok(plans(plan(), small)))
    device = node_list().nodes[0].devices[0]
    smaller = device.model_copy(update={"kind": "emulated-a100-10", "memory_bytes": 128 * 2**20})
    node = node_list().nodes[0].model_copy(update={"devices": (device, smaller)})
    cli.api.on("GET", "/nodes", ok(NodeList(nodes=(node,))))
    shown = cli("plan", "-f", job_file).out
    assert "the scheduler tries first: 1 x emulated-a100-10" in shown
    assert "(of 2 plans alike in count and parallelism, its kind has the smallest" in shown


@pytest.mark.parametrize(("policy", "says"), [("frenzy", "(the scheduler weighs"), ("las", "")])
def test_plan_does_not_name_a_first_plan_where_the_scheduler_has_none(cli, job_file, policy, says):
    under(cli, policy)
    small = replace(plan(kind="emulated-a100-10"), id="small")
    cli.api.on("POST", "/plans", ok(plans(plan(), small)))
    cli.api.on("GET", "/nodes", ok(node_list()))
    shown = cli("plan", "-f", job_file).out
    assert "other plans" in shown
    assert says in shown
    assert "tries first" not in shown
    assert ("scheduler" in shown) is bool(says)


def test_plan_invents_no_time_for_a_job_of_unknown_length(cli, job_file):
    of_1000 = replace(plan(), speed=replace(plan().speed, nominal_steps=1000, total_s=90.0))
    cli.api.on("POST", "/plans", ok(plans(of_1000, replace(of_1000, id="other"))))
    cli.api.on("GET", "/nodes", ok(node_list()))
    shown = cli("plan", "-f", job_file).out
    assert shown.count("for 1,000 steps") == 2
    cli.api.on("POST", "/plans", ok(plans(plan())))
    assert "steps" not in cli("plan", "-f", job_file).out


def test_plan_as_json_is_the_plan_set(planned, job_file):
    result = planned("plan", "-f", job_file, "-o", "json")
    assert json.loads(result.out)["plans"][0]["parallelism"]["zero_stage"] == 2
    assert result.err == ""


def test_plan_that_cannot_fit_is_104(cli, job_file):
    cli.api.on("POST", "/plans", ok(plans(refused=[refused_plan()], message="nothing fits")))
    cli.api.on("GET", "/nodes", ok(node_list()))
    result = cli("plan", "-f", job_file)
    assert not any(line.endswith(" ") for line in result.out.splitlines())
    assert result.code == 104
    assert "nothing fits" in result.out
    assert "resources.kinds" in result.out


def test_submit_prints_the_id_on_stdout_and_the_rest_on_stderr(planned, job_file):
    planned.api.on("POST", "/jobs", ok(job_view(), 201))
    result = planned("submit", "-f", job_file, "-d")
    assert result.code == 0
    assert result.out == "job1\n"
    assert "ZeRO-2" in result.err
    assert "frenzy describe job1" in result.err


def test_attached_submit_follows_to_the_outcome(planned, job_file):
    planned.api.on("POST", "/jobs", ok(job_view(), 201))
    planned.api.on("GET", "/jobs/job1/logs", sse(log(1, "step 1"), end="FAILED"))
    planned.api.on(
        "GET", "/jobs/job1", ok(job_view(state="FAILED", reason="UserCodeError", message="bug"))
    )
    result = planned("submit", "-f", job_file, "-y")
    assert result.code == 100
    assert result.out == "job1\n[0] step 1\n"
    assert "UserCodeError" in result.err


def test_following_says_why_the_job_waits_once(planned, job_file):
    waiting = PendingView(reason="WaitingForCapacity", message="needs 2, 1 is free")
    planned.api.on("POST", "/jobs", ok(job_view(pending=waiting), 201))
    planned.api.on("GET", "/jobs/job1/logs", sse(end="SUCCEEDED"))
    planned.api.on("GET", "/jobs/job1", ok(job_view(state="SUCCEEDED")))
    result = planned("submit", "-f", job_file, "-y")
    assert result.err.count("job1 QUEUED (WaitingForCapacity) needs 2, 1 is free") == 1
    assert "QUEUED" not in planned("submit", "-f", job_file, "-y", "-q").err


def test_the_job_file_is_the_argument_or_f_but_not_both(planned, job_file):
    planned.api.on("POST", "/jobs", ok(job_view(), 201))
    assert planned("submit", job_file, "-d", "-q").out == "job1\n"
    assert planned("plan", job_file, "-o", "name").out == "p1\n"
    both = planned("submit", job_file, "-f", job_file)
    assert both.code == 2
    assert "one job file" in both.err
    assert planned("plan").code == 2


@pytest.mark.parametrize("answer", [KeyboardInterrupt, EOFError])
def test_ctrl_c_at_the_question_submits_nothing(planned, job_file, monkeypatch, answer):
    def asked(_):
        raise answer

    monkeypatch.setattr("frenzy.cli.output.interactive", lambda: True)
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", asked)
    result = planned("submit", job_file)
    assert result.code == 130
    assert "cancelled; nothing was submitted" in result.err
    assert planned.api.sent("POST", "/jobs") == []


def test_ctrl_c_while_waiting_lets_go(cli):
    cli.api.on("GET", "/jobs/job1", ok(job_view(state="RUNNING")), KeyboardInterrupt())
    result = cli("wait", "job1")
    assert result.code == 130
    assert "job job1 goes on" in result.err


def test_submit_as_json_keeps_stdout_json(planned, job_file):
    planned.api.on("POST", "/jobs", ok(job_view(), 201))
    planned.api.on("GET", "/jobs/job1/logs", sse(log(1, "step 1"), end="SUCCEEDED"))
    planned.api.on("GET", "/jobs/job1", ok(job_view(state="SUCCEEDED")))
    result = planned("submit", "-f", job_file, "-y", "-o", "json")
    assert result.code == 0
    assert json.loads(result.out)["id"] == "job1"


def test_dry_run_creates_nothing(planned, job_file):
    result = planned("submit", "-f", job_file, "--dry-run")
    assert result.code == 0
    assert result.out == ""
    assert planned.api.sent("POST", "/jobs") == []


def test_submit_of_what_cannot_fit_names_the_pin(cli, job_file):
    cli.api.on("POST", "/plans", ok(plans(refused=[refused_plan()], message="nothing fits")))
    cli.api.on("GET", "/nodes", ok(node_list()))
    result = cli("submit", "-f", job_file)
    assert result.code == 104
    assert result.out == ""
    assert "error: nothing fits" in result.err
    assert "resources.kinds" in result.err
    assert cli.api.sent("POST", "/jobs") == []


def test_submit_reads_standard_input(planned, monkeypatch):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(SPEC)))
    planned.api.on("POST", "/jobs", ok(job_view(), 201))
    assert planned("submit", "-f", "-", "-d", "-q").out == "job1\n"


def test_wrong_specification_lists_every_field(cli, tmp_path):
    (tmp_path / "bad.yaml").write_text("model: gpt2\nlearning_rate: -1\nzero: 3\n")
    result = cli("submit", "-f", str(tmp_path / "bad.yaml"))
    assert result.code == 1
    for text in ("/learning_rate", "/zero", "/global_batch_size"):
        assert text in result.err
    assert "Traceback" not in result.err
