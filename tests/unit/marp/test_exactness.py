"""The fast ways of counting against the plain ones, bit by bit."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from frenzy_marp.core.memory.gradients import Gradients
from frenzy_marp.core.memory.profiles import block_profile, ends_profile
from frenzy_marp.core.memory.program import block_of, ends_of, is_ordinary
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.states import states
from frenzy_shared.catalog.families import RULES
from frenzy_shared.domain.adapters import Adapters, Role
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing, Loss
from frenzy_shared.domain.structure import LLAMA, Experts, FusedProjection

WIRINGS = sorted({rules.structure for rules in RULES.values()}, key=repr)
ADAPTERS = [
    Adapters(rank=rank, alpha=1.0, dropout=dropout, roles=roles, modules=())
    for rank, dropout, roles in [
        (1, 0.0, tuple(Role)),
        (8, 0.1, (Role.QUERY, Role.FUSED, Role.DOWN)),
    ]
]
EXPERTS = [
    Experts(count=1, per_token=1, normalises=False),
    Experts(count=8, per_token=2, normalises=True, full_weights=True),
    Experts(count=128, per_token=8, normalises=True),
]


@st.composite
def shapes(draw):
    """Any structure with any sizes, also those where rounding makes different sizes equal."""
    wiring = draw(st.sampled_from(WIRINGS))
    heads = draw(st.sampled_from([1, 2, 3, 8]))
    head_dim = 2 * draw(st.integers(1, 50))
    model = ModelArchitecture(
        family=Family.OTHER,
        structure=wiring,
        hidden_size=draw(st.integers(1, 300)),
        num_layers=1,
        num_heads=heads,
        num_kv_heads=heads
        if wiring.fused is FusedProjection.HEADS
        else draw(st.sampled_from([1, heads])),
        head_dim=head_dim,
        intermediate_size=draw(st.integers(1, 500)),
        vocab_size=draw(st.sampled_from([1, 300, 5000])),
        max_positions=draw(st.sampled_from([None, 1, 300, 301, 5000])),
        rotary_dim=draw(st.sampled_from(_rotary_dims(wiring, head_dim))),
        tied_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        activation=draw(st.sampled_from(["gelu_new", "silu", "relu"])),
        head_bias=draw(st.booleans()),
        sliding_window=draw(st.sampled_from([None, 1, 50])),
        experts=draw(st.sampled_from([None, None, *EXPERTS])),
        adapters=draw(st.sampled_from([None, *ADAPTERS])),
    )
    attention = draw(st.sampled_from(list(Attention)))
    length = draw(st.sampled_from([1, 5, 64, 100]))
    loss = draw(st.sampled_from(list(Loss)))
    return Shape(model, attention, 1, length, draw(st.sampled_from([2, 4])), loss)


def _rotary_dims(wiring, head_dim):
    return [0, head_dim, 2] if wiring.joins_rotary else [0, head_dim]


sequences = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(sorted)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    shape=shapes(),
    counts=sequences,
    checkpointing=st.sampled_from(list(ActivationCheckpointing)),
    gathers=st.booleans(),
)
def test_a_program_counts_a_layer_as_its_own_tape_does(shape, counts, checkpointing, gathers):
    found = block_of(shape, checkpointing, np.array(counts), gathers=gathers)
    for column, count in enumerate(counts):
        own = block_profile(replace(shape, sequences=count), checkpointing, gathers=gathers)
        assert found.kept[column] == own.kept
        assert found.forward_peak[column] == own.forward_peak
        points = own.backward.peaks + own.backward.handing
        assert tuple(found.points[:, column]) == points
        assert found.parameters == own.backward.parameters


@settings(max_examples=150, deadline=None, derandomize=True)
@given(shape=shapes(), counts=sequences, gathers=st.booleans())
def test_a_program_counts_the_ends_as_their_own_tape_does(shape, counts, gathers):
    found = ends_of(shape, np.array(counts), gathers=gathers)
    for column, count in enumerate(counts):
        own = ends_profile(replace(shape, sequences=count), gathers=gathers)
        last, first = own.last, own.first
        assert found.forward_peak[column] == own.forward_peak
        points = last.peaks[:-1] + first.peaks + last.handing + first.handing
        assert tuple(found.points[:, column]) == points
        assert found.parameters == last.parameters + first.parameters


def test_models_of_ordinary_size_do_not_run_their_own_tape():
    small = Shape(
        ModelArchitecture(
            family=Family.LLAMA,
            structure=LLAMA,
            hidden_size=96,
            num_layers=1,
            num_heads=4,
            num_kv_heads=2,
            head_dim=24,
            intermediate_size=256,
            vocab_size=256,
            max_positions=None,
            rotary_dim=24,
            tied_embeddings=True,
            attention_bias=False,
            output_bias=False,
            mlp_bias=False,
            activation="silu",
        ),
        Attention.EAGER,
        sequences=1,
        length=64,
        element=2,
    )
    assert is_ordinary(small, 1)
    assert not is_ordinary(replace(small, length=1), 1)  # 192 and 384 bytes: one block each


def copied(sizes, indices, ranks, bucket):
    """Cut gradients into the ranks' slices, element by element: the largest message of several."""
    own = -(-sum(sizes) // (4 * ranks)) * 4  # elements of 2 bytes, an even number a rank
    slices = []
    for index in indices:
        start = sum(sizes[index + 1 :])  # the flat parameters are in the model's order
        for byte in range(start, start + sizes[index]):
            owner = byte // own
            if slices and slices[-1][0] == owner:
                slices[-1][1] += 1
            else:
                slices.append([owner, 1])
    messages, message = [], []
    for _, size in slices:
        message.append(size)
        if sum(message) > bucket:
            messages, message = [*messages, message], []
    return max((sum(each) for each in [*messages, message] if len(each) > 1), default=0)


def followed(sizes, first, end, ranks, bucket, *, accumulates):
    """Walk stage 2 gradient by gradient: bytes held before each, and while each is handed over."""
    partition = sum(sizes[first:end])
    kept = partition if accumulates else 0
    filled = oversized = 0
    owned = allocated = False
    before, handing, inside = [kept], [], []
    for index, size in enumerate(sizes):
        held = kept + bucket + oversized + (partition if allocated else 0)
        if filled and filled + size > bucket:
            arriving = partition if owned and not allocated else 0
            handing.append(held + max(arriving, copied(sizes, inside, ranks, bucket)))
            allocated = allocated or owned
            filled = oversized = 0
            owned, inside = False, []
        else:
            handing.append(held)
        inside.append(index)
        filled += size
        owned = owned or first <= index < end
        oversized = size if size > bucket else 0
        before.append(kept + bucket + oversized + (partition if allocated else 0))
    held = kept + bucket + oversized + (partition if allocated else 0)
    after = max(
        held - (0 if allocated else -partition), held + copied(sizes, inside, ranks, bucket)
    )
    return before, handing, after


def scattered(sizes, ranks, bucket):
    """Walk stage 3 gradient by gradient."""
    filled = count = oversized = 0
    before, handing = [0], []
    for size in sizes:
        full = bool(filled) and filled + size > bucket
        single = count == 1 and filled % (4 * ranks) == 0
        handing.append(oversized + (filled if full and not single else 0))
        if full:
            filled = count = 0
        filled += size
        count += 1
        oversized = size if size > bucket else 0
        before.append(oversized)
    return before, handing


def reduced(sizes, first, end, ranks, bucket):
    """Walk stage 1's reduction in the model's order: the most it adds to the whole gradients."""
    partition = sum(sizes[first:end])
    filled = moved = peak = 0
    owned = allocated = oversized = False

    def held():
        return (partition if allocated else 0) - moved

    inside = []
    for index in reversed(range(len(sizes))):
        size = sizes[index]
        if filled and (filled + size > bucket or oversized):
            peak = max(peak, held() + copied(sizes, inside, ranks, bucket))
            allocated = allocated or owned
            peak = max(peak, held())
            filled, owned, oversized = 0, False, False
            inside = []
        inside.append(index)
        oversized = size > bucket
        filled += size
        owned = owned or first <= index < end
        moved += 0 if oversized else size
    peak = max(peak, held() + copied(sizes, inside, ranks, bucket), partition - moved)
    return bucket + peak


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 60).map(lambda n: 2 * n), min_size=1, max_size=30),
    ranks=st.sampled_from([1, 2, 3, 4, 7]),
    bucket=st.integers(1, 80),
    accumulates=st.booleans(),
)
def test_tracks_agree_with_walking_gradient_by_gradient(sizes, ranks, bucket, accumulates):
    gradients = Gradients(np.array(sizes), element=2, bucket_bytes=2 * bucket)
    spans = list(zip(*gradients.spans(ranks), strict=True))
    two = gradients.track(2, ranks, accumulates=accumulates)
    walks = [followed(sizes, *span, ranks, 2 * bucket, accumulates=accumulates) for span in spans]
    assert two.walk.before.tolist() == np.max([before for before, _, _ in walks], axis=0).tolist()
    assert (
        two.walk.handing.tolist() == np.max([handing for _, handing, _ in walks], axis=0).tolist()
    )
    assert two.after == max(after for _, _, after in walks)
    three = gradients.track(3, ranks, accumulates=accumulates)
    assert (three.walk.before.tolist(), three.walk.handing.tolist()) == scattered(
        sizes, ranks, 2 * bucket
    )
    one = gradients.track(1, ranks, accumulates=accumulates)
    highest = max(reduced(sizes, *span, ranks, 2 * bucket) for span in spans)
    assert one.after == sum(sizes) + highest


def test_stage_0_reduces_gradients_until_they_are_too_many():
    million = 10**6

    def message(*elements):
        sizes = np.array([2 * million * count for count in elements])
        gradients = Gradients(sizes, element=2, bucket_bytes=2)
        return (gradients.track(0, 4, accumulates=False).after - sizes.sum()) // (2 * million)

    assert message(10, 20) == 30  # all fit into one
    assert message(300, 100, 300) == 700  # the third is gathered before the limit is looked at
    assert message(100, 50, 600, 10) == 610  # in the model's order, the reverse of backward's
    assert message(600) == 0  # one alone is reduced in place


def test_stage_3_updates_groups_that_end_with_the_parameter_that_fills_them():
    def at_once(*millions, ranks=1):
        elements = np.array(millions) * 10**6
        found = states(elements, stage=3, ranks=ranks, element=2, bucket=2, persistence_threshold=0)
        return found.step_gradients // (4 * 10**6)

    assert at_once(300, 200) == 500
    assert at_once(300, 600, 900) == 1500  # the model's order is the reverse: 900 + 600, then 300
    assert at_once(300, 600, 900, ranks=2) == 900  # halves: all in one
