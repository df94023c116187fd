"""What ``frenzy simulate`` writes when nothing comes of a workload."""

from dataclasses import fields

from frenzy.cli.commands import simulate
from frenzy.cli.options import Format
from frenzy_simulator.metrics import Quantiles, Summary


def test_of_no_finished_job_there_are_no_times(capsys):
    nothing = dict.fromkeys((field.name for field in fields(Summary)), 0)
    cpu = Quantiles(**dict.fromkeys((field.name for field in fields(Quantiles)), 0.0))
    of_none = Summary(**{**nothing, "policy": "fifo", "jobs": 1, "decision_cpu_us": cpu})
    simulate._write([of_none], None, Format.TABLE)
    shown = capsys.readouterr()
    row = shown.out.splitlines()[1].split()
    assert (row[0], row[1:6], row[-1]) == ("fifo", ["-"] * 5, "0/1")
    assert shown.err == "fifo: no job finished, so there are no times\n"
