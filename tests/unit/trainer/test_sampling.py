"""Every plan trains on the same samples in the same optimizer steps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from frenzy_trainer.sampling import SampleOrder, micro_batch_positions


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 300), epoch=st.integers(0, 5))
def test_an_epoch_visits_every_sample_once(seed: int, count: int, epoch: int) -> None:
    order = SampleOrder(seed, count)
    visited = [order.sample(epoch * count + index) for index in range(count)]
    assert sorted(visited) == list(range(count))


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    first = [SampleOrder(0, 100).sample(index) for index in range(200)]
    other = [SampleOrder(1, 100).sample(index) for index in range(100)]
    assert first[:100] != first[100:]
    assert first[:100] != other
    assert first[:100] != sorted(first[:100])


def test_the_order_never_changes_between_versions() -> None:
    # A run that resumes after an upgrade must see the samples it would have seen.
    assert [SampleOrder(7, 1000).sample(index) for index in (0, 1, 2, 1000, 10**9)] == GOLDEN


GOLDEN = [666, 347, 614, 945, 118]


@given(
    micro=st.integers(1, 5),
    accumulation=st.integers(1, 4),
    ranks=st.integers(1, 4),
    step=st.integers(0, 9),
)
def test_the_ranks_share_out_the_global_batch(
    micro: int, accumulation: int, ranks: int, step: int
) -> None:
    positions = [
        position
        for rank in range(ranks)
        for micro_step in range(accumulation)
        for position in micro_batch_positions(
            step=step,
            micro_step=micro_step,
            rank=rank,
            data_parallel=ranks,
            micro_batch=micro,
            accumulation=accumulation,
        )
    ]
    batch = micro * accumulation * ranks
    assert sorted(positions) == list(range(step * batch, (step + 1) * batch))
