"""Real gangs of rank processes: training, limits, interruption, resumption."""

import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.trainer import Gang, Job, RankResult, run_gang, start_gang

MIB = 1024**2
STEPS = 6
SPEC: dict[str, Any] = {
    "max_steps": STEPS,
    "lr_scheduler": "cosine",
    "warmup_steps": 2,
    "checkpoint": {"every_steps": 2, "keep": 3},
}


def one_rank(text: Path, **options: Any) -> Job:
    return Job(data=text, micro_batch=4, **{"spec": SPEC, **options})


def two_ranks(text: Path, **options: Any) -> Job:
    """Return the same job on two ranks, in four micro-batches of one instead of one of four."""
    return Job(
        data=text,
        ranks=2,
        micro_batch=1,
        accumulation=2,
        **{"zero_stage": 2, "spec": SPEC, **options},
    )


@pytest.fixture(scope="module")
def alone(text: Path, home: Path) -> tuple[RankResult, Path]:
    folder = home / "alone"
    return run_gang(one_rank(text), folder)[0], folder


@pytest.fixture(scope="module")
def pair(text: Path, home: Path) -> tuple[list[RankResult], Path]:
    folder = home / "pair"
    return run_gang(two_ranks(text), folder), folder


def test_trains_and_says_so(alone: tuple[RankResult, Path]) -> None:
    rank, folder = alone
    assert rank.exit_code == 0, rank.stderr
    assert rank.losses[-1] < rank.losses[0] - 0.5
    steps = rank.of("step")
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    rates = [step["learning_rate"] for step in steps]
    assert rates[:3] == [5e-4, 1e-3, 1e-3]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert all(step["tokens_per_second"] > 0 for step in steps)
    summary = rank.summary
    assert summary["last_step"] == STEPS
    assert (summary["loss_first"], summary["loss_last"]) == (rank.losses[0], rank.losses[-1])
    assert summary["peak_allocated_bytes"] == max(step["peak_allocated_bytes"] for step in steps)
    assert summary["model_dir"] == str(folder / "checkpoints" / "model")
    assert f"step {STEPS}/{STEPS} loss" in rank.stdout
    assert rank.stderr == "", "a person reads this log: no warnings of libraries"


def test_keeps_the_newest_checkpoints_and_leaves_nothing_else(
    alone: tuple[RankResult, Path],
) -> None:
    rank, folder = alone
    assert [report["step"] for report in rank.of("checkpoint")] == [2, 4, 6]
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {"step-2", "step-4", "step-6", "model"}


def test_the_losses_do_not_depend_on_the_plan(
    alone: tuple[RankResult, Path], pair: tuple[list[RankResult], Path]
) -> None:
    first, second = pair[0]
    assert first.losses == second.losses, "the mean over all ranks, on every rank"
    assert first.losses == pytest.approx(alone[0].losses, abs=5e-3)
    assert second.of("checkpoint") == [], "rank 0 speaks for the gang"


def test_a_checkpoint_of_two_ranks_continues_on_one(
    text: Path, home: Path, pair: tuple[list[RankResult], Path]
) -> None:
    results, folder = pair
    origin = folder / "checkpoints" / "step-2"
    resumed = run_gang(one_rank(text), home / "resumed", attempt=2, resume_from=origin)[0]
    assert resumed.exit_code == 0, resumed.stderr
    assert resumed.losses == pytest.approx(results[0].losses[2:], abs=5e-3)
    assert "converted to this plan" in resumed.stdout
    assert resumed.summary["loss_first"] == results[0].losses[0], "of the job, not of the attempt"


def test_a_checkpoint_continues_in_the_other_class_of_stages_and_comes_back(
    text: Path, home: Path, pair: tuple[list[RankResult], Path]
) -> None:
    """ZeRO-2 on two ranks, then ZeRO-3 on one, then ZeRO-1 on one: the losses are the same run's."""
    results, folder = pair
    job = one_rank(text, zero_stage=3)
    there = run_gang(job, home / "there", attempt=2, resume_from=folder / "checkpoints" / "step-2")[
        0
    ]
    assert there.exit_code == 0, there.stderr
    assert there.losses == pytest.approx(results[0].losses[2:], abs=5e-3)
    origin = home / "there" / "checkpoints" / "step-4"
    back = run_gang(one_rank(text), home / "back", attempt=3, resume_from=origin)[0]
    assert back.exit_code == 0, back.stderr
    assert back.losses == pytest.approx(results[0].losses[4:], abs=5e-3)


def test_another_number_format_is_refused_with_both_plans_named(
    text: Path, home: Path, pair: tuple[list[RankResult], Path]
) -> None:
    origin = pair[1] / "checkpoints" / "step-2"
    job = one_rank(text, precision="fp32")
    refused = run_gang(job, home / "refused", attempt=2, resume_from=origin)[0]
    assert refused.exit_code == 1
    assert refused.failure["reason"] == "CheckpointError"
    assert "ZeRO-2 on 2 ranks in bf16" in refused.failure["message"]
    assert "ZeRO-1 on 1 rank in fp32" in refused.failure["message"]


def test_one_block_less_than_the_measured_peak_is_out_of_memory(
    text: Path, home: Path, alone: tuple[RankResult, Path]
) -> None:
    peak = alone[0].summary["peak_allocated_bytes"]
    (tight,) = run_gang(one_rank(text, memory_bytes=peak - 512), home / "tight")
    assert tight.exit_code == 1
    assert tight.failure["reason"] == "CudaOutOfMemory"
    assert "rank 0: OutOfMemoryError: Emulated device out of memory" in tight.failure["message"]
    assert f"total capacity of {(peak - 512) / MIB:.2f} MiB" in tight.failure["message"]
    assert tight.of("summary")[0]["peak_allocated_bytes"] <= peak - 512


def test_interrupted_twice_the_losses_are_those_of_the_uninterrupted_run(
    text: Path, home: Path, pair: tuple[list[RankResult], Path]
) -> None:
    """SIGTERM to one rank, then kill -9 of a rank of the resumed gang, then to the end."""
    slow = two_ranks(text, speed=0.1)
    folder = home / "interrupted"

    gang = start_gang(slow, folder)
    wait_for(gang, lambda: any(report["kind"] == "step" for report in gang.reports()))
    gang.processes[1].send_signal(signal.SIGTERM)
    stopped = gang.wait()
    assert [rank.exit_code for rank in stopped] == [143, 143], "the ranks agreed on a step"
    saved = stopped[0].of("checkpoint")[-1]["step"]
    assert saved == len(stopped[0].losses) < 4

    options: dict[str, Any] = {"attempt": 2, "environment": sharing(folder)}
    origin = folder / "checkpoints" / f"step-{saved}"
    gang = start_gang(slow, home / "killed", resume_from=origin, **options)
    wait_for(gang, lambda: {"kind": "checkpoint", "step": 4} in gang.reports())
    gang.processes[1].kill()
    survivor = gang.wait()[0]
    assert survivor.exit_code == 1
    assert survivor.failure["reason"] == "CommunicationError", survivor.failure

    options["attempt"] = 3
    origin = folder / "checkpoints" / "step-4"
    ended = run_gang(two_ranks(text), home / "ended", resume_from=origin, **options)[0]
    assert ended.exit_code == 0, ended.stderr
    losses = stopped[0].losses + survivor.losses[: 4 - saved] + ended.losses
    assert losses == pair[0][0].losses
    assert not list((folder / "checkpoints").glob(".tmp-*"))


def test_a_full_disk_is_a_checkpoint_error_and_the_former_checkpoint_stays(
    text: Path, home: Path, alone: tuple[RankResult, Path]
) -> None:
    _, former = alone
    origin = former / "checkpoints" / "step-4"
    before = sorted(path.stat().st_size for path in origin.rglob("*"))

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    rank = run_gang(
        one_rank(text),
        home / "full",
        attempt=2,
        resume_from=origin,
        environment=sharing(former),
        prepare_rank=small_disk,
    )[0]
    assert rank.exit_code == 1
    assert rank.failure["reason"] == "CheckpointError"
    assert "free space" in rank.failure["message"]
    assert sorted(path.stat().st_size for path in origin.rglob("*")) == before
    assert not list((former / "checkpoints").glob(".tmp-*"))


def test_bad_data_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("Stra\xdfe".encode("latin-1") * 100)
    started = time.monotonic()
    (rank,) = run_gang(Job(data=tmp_path / "latin.txt"), tmp_path / "gang")
    assert time.monotonic() - started < 10
    assert rank.exit_code == 1
    assert rank.failure["reason"] == "DataError"
    assert "is not UTF-8 text (byte 4); convert it" in rank.failure["message"]
    assert "Traceback" not in rank.stderr


def sharing(folder: Path) -> dict[str, str]:
    """Return the variable that gives another attempt the checkpoints of the first."""
    return {"FRENZY_CHECKPOINT_DIR": str(folder / "checkpoints")}


def wait_for(gang: Gang, condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline or any(p.poll() is not None for p in gang.processes):
            gang.kill()
            logs = [path.read_text() for path in gang.folder.glob("ranks/*/stderr.log")]
            pytest.fail(f"the gang ended or never got there: {logs}")
        time.sleep(0.01)
