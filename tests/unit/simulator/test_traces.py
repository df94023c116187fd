"""Every schema is read, and every kind of nonsense is refused with its line."""

import itertools

import pytest

from frenzy_simulator.errors import InvalidTrace
from frenzy_simulator.traces import load_trace, parse_trace

HEADER = "job_id,submit_s,duration_s,gpus_requested,model_or_class,user_vc,status\n"


def read(*rows: str, header: str = HEADER, **how: object):
    return parse_trace([header, *(f"{row}\n" for row in rows)], **how)


def test_common_columns_and_the_first_submission_is_second_zero():
    one, two = read("a,100,60,2,bert,vc1,Pass", "b,160.5,30,1,,,", header=HEADER)
    assert (one.submit_s, one.duration_s, one.gpus_requested) == (0.0, 60.0, 2)
    assert (one.model_or_class, one.user_vc, one.status) == ("bert", "vc1", "Pass")
    assert two.submit_s == 60.5


SHARED = "job_id,submit_s,duration_s,gpus_requested,priority,project\n"


def test_priority_and_project_where_the_trace_has_them():
    first, second = read("a,0,1,1,90,vision", "b,1,1,1,,", header=SHARED)
    assert (first.priority, first.project) == (90, "vision")
    assert (second.priority, second.project) == (50, "default")


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ("101,p", "trace:2: priority is 101; it must be 0 to 100"),
        ("-1,p", "priority is -1"),
        ("high,p", "priority is 'high', not a whole number"),
        ("5,Vision Team", "project is 'Vision Team'"),
    ],
)
def test_impossible_priorities_and_projects_are_refused(cells, problem):
    with pytest.raises(InvalidTrace, match=problem):
        read(f"a,0,1,1,{cells}", header=SHARED)


def test_helios():
    header = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
        "duration,queue\n"
    )
    rows = [
        "1,u1,vc3,8,64,1,COMPLETED,2020-04-01 00:00:30,2020-04-01 00:01:00,x,120,30",
        "2,u1,vc3,0,4,1,COMPLETED,2020-04-01 00:00:40,2020-04-01 00:01:00,x,5,0",
        "3,u2,vc1,1,4,1,FAILED,2020-04-01 00:02:30,2020-04-01 00:03:00,x,7,0",
    ]
    found = read(*rows, header=header)
    assert [(j.id, j.submit_s, j.duration_s, j.gpus_requested, j.user_vc) for j in found] == [
        ("1", 0.0, 120.0, 8, "vc3"),
        ("3", 120.0, 7.0, 1, "vc1"),
    ]


def test_acme():
    header = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,duration\n"
    row = "d,uf7,8,64,960,Pretrain,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,18"
    (job,) = read(row, header=header)
    assert (job.gpus_requested, job.model_or_class, job.duration_s) == (64, "Pretrain", 18.0)


def test_alibaba_pai_counts_shares_of_a_gpu_as_whole_ones():
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    rows = [
        "a,worker,2.0,Terminated,1000.0,1100.0,600.0,29.2,50.0,MISC",
        "b,worker,1.0,Terminated,1010.0,1020.0,600.0,29.2,,MISC",
        "c,worker,1.0,Running,1015.0,,600.0,29.2,100.0,T4",
        "d,worker,3.0,Failed,1030.0,1060.0,600.0,29.2,200.0,T4",
    ]
    found = read(*rows, header=header)
    assert [(j.id, j.gpus_requested, j.duration_s) for j in found] == [
        ("a", 1, 100.0),
        ("d", 6, 30.0),
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["a,-1,60,1,,,"], "trace:2: submit_s is -1; it must not be negative"),
        (["a,0,-60,1,,,"], "trace:2: duration_s gives -60 s of running"),
        (["a,0,60,0,,,"], "trace:2: gpus_requested is 0; a job needs at least 1 GPU"),
        (["a,0,60,-2,,,"], "trace:2: gpus_requested is -2"),
        (["a,0,60,1e9,,,"], "trace:2: gpus_requested is 1000000000; at most"),
        (["a,0,60,one,,,"], "trace:2: gpus_requested: could not convert"),
        (["a,0,60,inf,,,"], "trace:2: gpus_requested: 'inf' is not a finite"),
        (["a,soon,60,1,,,"], "trace:2: submit_s is 'soon', not a time"),
        (["a,0,nan,1,,,"], "trace:2: duration_s is nan; it must be finite"),
        ([",0,60,1,,,"], "trace:2: job_id is empty"),
        (["a,0,60"], "trace:2: has not as many cells"),
        (["a,0,60,1,,,,extra"], "trace:2: has not as many cells"),
        (["a,5,60,1,,,", "b,4,60,1,,,"], "trace:3: job b was submitted before the job above it"),
        (["a,5,60,1,,,", "a,6,60,1,,,"], "trace:3: job a was already on line 2"),
        (["a,5,60,64,,,"], "trace:2: job a asks for 64 GPUs; the cluster has 32"),
        ([], "trace has no jobs"),
    ],
)
def test_impossible_rows_name_their_line(rows, problem):
    with pytest.raises(InvalidTrace) as caught:
        read(*rows, largest=32)
    assert problem in caught.value.message


def test_missing_columns_are_named():
    with pytest.raises(InvalidTrace, match="lacks the columns gpus_requested, duration_s"):
        read("a,1", header="job_id,submit_s\n")
    with pytest.raises(InvalidTrace, match="empty"):
        parse_trace([])


def test_requests_are_cut_and_rows_sorted_only_when_asked():
    rows = ["a,5,60,64,,,", "b,4,60,1,,,"]
    found = read(*rows, largest=32, cap=True, resort=True)
    assert [(job.id, job.submit_s, job.gpus_requested) for job in found] == [
        ("b", 0.0, 1),
        ("a", 1.0, 32),
    ]


def test_of_an_endless_trace_only_the_head_is_read():
    endless = (f"j{n},{n},60,1,,,\n" for n in itertools.count())
    assert len(parse_trace(itertools.chain([HEADER], endless), limit=1000)) == 1000


def test_a_trace_of_millions_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("frenzy_simulator.traces.MAX_JOBS", 100)
    endless = (f"j{n},{n},60,1,,,\n" for n in itertools.count())
    with pytest.raises(InvalidTrace, match="trace:102: more than 100 jobs"):
        parse_trace(itertools.chain([HEADER], endless), resort=True)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(InvalidTrace, match="cannot read"):
        load_trace(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InvalidTrace, match="not UTF-8"):
        load_trace(binary)
    huge = tmp_path / "huge.csv"
    huge.write_text(HEADER + '"' + "x" * 100_000 + '",0,1,1,,,\n')
    with pytest.raises(InvalidTrace, match=r"huge\.csv:\d+: field larger"):
        load_trace(huge)
