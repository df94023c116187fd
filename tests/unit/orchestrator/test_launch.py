"""What ranks get to see: everything they need, nothing they must not."""

import sys
from dataclasses import replace

from frenzy_orchestrator.core.launch import Gang, LocalRank, Programs, Script, argv, environment

PROGRAMS = Programs(
    trainer=("python", "-m", "t"), script=("python", "-m", "l"), bin_folder="/v/bin"
)
HOST = {
    "PATH": "/bin",
    "HOME": "/root",
    "LC_ALL": "C",
    "FRENZY_NATS_URL": "nats://secret@x",
    "AWS_SECRET_ACCESS_KEY": "s",
    "PYTHONPATH": "/somewhere",
}


def local(rank=0, *, emulated=True):
    return LocalRank(
        rank=rank,
        local_rank=rank,
        visible_device=f"GPU-{rank}",
        emulated=emulated,
        memory_bytes=64,
        speed=0.5,
    )


def gang(**fields):
    base = Gang(
        job="j1",
        attempt=2,
        world_size=4,
        master_host="10.0.0.1",
        master_port=20001,
        ranks=(local(0), local(1)),
        script=None,
        interface="lo",
        plan_file="/a/plan.json",
        deepspeed_file="/a/deepspeed.json",
        checkpoint_folder="/c/j1",
        resume_from="",
        data="/d",
        tokenizer="",
        traceparent="",
    )
    return replace(base, **fields)


def env(given, rank=None, host=HOST):
    return environment(
        given, rank or given.ranks[0], report_file="/a/report.jsonl", programs=PROGRAMS, host=host
    )


def test_torch_variables():
    found = env(gang(), local(1))
    assert {
        name: found[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    } == {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.1", "20001")


def test_the_hosts_secrets_stay_away():
    found = env(gang())
    assert not {"FRENZY_NATS_URL", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH"} & set(found)
    assert (found["HOME"], found["LC_ALL"], found["PATH"]) == ("/root", "C", "/v/bin:/bin")


def test_users_override_the_plan_but_not_frenzy():
    found = env(
        gang(
            plan_env={"OMP_NUM_THREADS": "2", "A": "plan"},
            user_env={"A": "user", "RANK": "9", "DS_ACCELERATOR": "cuda"},
        )
    )
    assert (found["A"], found["OMP_NUM_THREADS"], found["RANK"]) == ("user", "2", "0")
    assert found["DS_ACCELERATOR"] == "cpu"


def test_emulated_devices():
    found = env(gang())
    assert found["FRENZY_EMULATED_MEMORY_BYTES"] == "64"
    assert found["FRENZY_EMULATED_SPEED"] == "0.5"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert found["GLOO_SOCKET_IFNAME"] == "lo"


def test_real_devices_are_visible_in_local_rank_order():
    ranks = (local(1, emulated=False), local(0, emulated=False))
    found = env(gang(ranks=ranks, interface=""))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert "FRENZY_EMULATED_MEMORY_BYTES" not in found
    assert "GLOO_SOCKET_IFNAME" not in found


def test_absent_inputs_have_no_variable():
    assert not {"FRENZY_RESUME_FROM", "FRENZY_TOKENIZER"} & set(env(gang()))
    assert env(gang(resume_from="/c/j1/step-3"))["FRENZY_RESUME_FROM"] == "/c/j1/step-3"


def test_a_job_of_an_array_knows_its_index():
    assert env(gang(array_index="7"))["FRENZY_ARRAY_INDEX"] == "7"
    assert "FRENZY_ARRAY_INDEX" not in env(gang())


def test_commands():
    assert argv(gang(), PROGRAMS) == ("python", "-m", "t")
    script = Script(path="train.py", arguments=("--fast",))
    assert argv(gang(script=script), PROGRAMS) == ("python", "-m", "l", "train.py", "--fast")
    assert sys.executable


def test_what_is_secret_is_left_out_unless_frenzy_sets_it():
    found = env(gang(user_env={"A": "1"}, secrets=frozenset({"HOME", "A", "MASTER_ADDR"})))
    assert "HOME" not in found
    assert "A" not in found
    assert found["MASTER_ADDR"] == "10.0.0.1"
