"""The end of the demo, and hints in the words of the command line."""

from types import SimpleNamespace

from tests.support.api import held_devices, job_view, plan

from frenzy.cli import output
from frenzy.cli.commands.demo import _PIPE_WIDTH, _Progress
from frenzy.cli.demo_report import Outcome, as_json, summary
from frenzy.cli.hints import hints
from frenzy.errors import NoFeasiblePlan
from frenzy_shared.messages.http import RankView

RANK = RankView(
    rank=0,
    exit_code=0,
    reason="Completed",
    peak_allocated_bytes=100 * 2**20,
    loss_first=5.5,
    loss_last=2.25,
    tokens_per_second=1234.0,
)


def test_the_result_compares_speeds_and_fits_a_page(capsys):
    view = job_view(name="two-nodes", state="SUCCEEDED", plan=plan(), ranks=(RANK,))
    outcome = Outcome(name="two-nodes", view=view.model_copy(update=held_devices()))
    refused = Outcome(name="impossible", view=None)
    output.out(pipe_width=_PIPE_WIDTH).print(summary([outcome, refused]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4, lines
    assert lines[2].split()[-2:] == ["2,048", "1,234"]
    assert max(map(len, lines)) <= _PIPE_WIDTH
    assert not any(line.endswith(" ") for line in lines)
    assert as_json(outcome)["predicted_tokens_per_second"] == 2048.0


def test_progress_is_as_new_as_the_metrics():
    running = job_view(state="RUNNING", last_step=1)
    points = ({"attempt": 1, "step": 3, "loss": 4.5}, {"attempt": 1, "step": 2})
    job = SimpleNamespace(refresh=lambda: running, metrics=lambda: points)
    progress = _Progress(job=job, max_steps=8, started=0.0)
    assert "step  3 of 8  loss 4.500" in progress.news().plain
    assert progress.news() is None


def test_a_hint_names_the_option_and_not_the_apis_parameter():
    error = NoFeasiblePlan("no", suggestions=("relax", "submit with force_queue=true (...)"))
    assert hints(error) == ("relax", "wait for nodes that fit: frenzy submit --force-queue")
