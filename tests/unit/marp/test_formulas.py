"""Terms that were worked out by hand."""

import numpy as np
import pytest

from frenzy_marp.core.frenzy_2024 import published_parameters, published_peak
from frenzy_marp.core.learning_errors import Correction
from frenzy_marp.core.memory import operators as op
from frenzy_marp.core.memory.estimate import (
    DeviceTraits,
    estimate,
    required_bytes,
    room_bytes,
)
from frenzy_marp.core.memory.gradients import Gradients
from frenzy_marp.core.memory.predictor import Peak
from frenzy_marp.core.memory.profiles import block_profile, ends_profile
from frenzy_marp.core.memory.shape import Shape
from frenzy_marp.core.memory.states import states
from frenzy_marp.core.memory.tape import Tape
from frenzy_shared.domain import structure
from frenzy_shared.domain.model import Attention, Family, ModelArchitecture
from frenzy_shared.domain.plan import ActivationCheckpointing, MemoryTerm

LLAMA = ModelArchitecture(
    family=Family.LLAMA,
    structure=structure.LLAMA,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=160,
    vocab_size=512,
    max_positions=None,
    rotary_dim=16,
    tied_embeddings=False,
    attention_bias=False,
    output_bias=False,
    mlp_bias=False,
    activation="silu",
)


def test_the_published_formula_by_hand():
    model = ModelArchitecture(
        family=Family.GPT2,
        structure=structure.GPT2,
        hidden_size=2,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=2,
        intermediate_size=8,
        vocab_size=3,
        max_positions=4,
        rotary_dim=0,
        tied_embeddings=True,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        activation="gelu_new",
    )
    # W = 3*2 + (12*4 + 13*2) = 80; static 20 * 80; activations 4*1*2*1 * (10 + 24 + 5*1*4/2)
    assert published_parameters(model) == 80
    assert published_peak(model, sequence_length=4, micro_batch_size=1) == 1600 + 8 * 44
    # t = 2: 800 + 8 * (10 + 12 + 5*4/4)
    assert published_peak(model, sequence_length=4, micro_batch_size=1, tensor=2) == 800 + 8 * 27


def test_a_linear_layer_saves_its_input_and_frees_it_backward():
    tape = Tape()
    x = tape.value(1024)
    y = op.linear(tape, x, 2048, weight_bytes=512)
    tape.drop(x, y)
    assert tape.live == 1024  # the input, for the weight's gradient
    gradient = tape.allocate(2048)
    tape.restart_peaks()
    tape.backward(y, gradient)
    # incoming, saved input, and the gradients of weight and input
    assert tape.peaks[0] == 2048 + 1024 + 512 + 1024
    assert tape.handing == [512 + 1024]  # what was incoming or saved is gone
    assert tape.peaks[1] == tape.live == 1024
    assert tape.parameters == [512]


def test_a_recomputed_layer_holds_the_weights_that_it_gathered():
    def two_layers(tape):
        x = tape.value(1024)
        middle = op.linear(tape, x, 1024, weight_bytes=4096)
        out = op.linear(tape, middle, 1024, weight_bytes=8192)
        tape.drop(x, middle)
        return out

    first = Tape(keep_saved=False, gathers=True)
    two_layers(first)
    assert first.ending == (8192,)
    again = Tape(last_save=first.num_saves, gathers=True)
    gradient = again.allocate(1024)
    again.gather_early(first.ending)
    out = two_layers(again)
    # Inputs and weights: the first layer's is saved, the last one's was there before.
    assert again.live == 1024 + 2 * 1024 + 4096 + 8192
    again.backward(out, gradient)
    # The gradients of the last layer's weight and input join what is held, and the incoming one.
    assert again.peaks[0] == 2 * 1024 + 4096 + 8192 + 1024 + 8192 + 1024
    # The first layer's weight is gathered once more, beside the one that was saved.
    assert again.peaks[1] == 1024 + 4096 + 4096 + 1024 + 4096 + 1024
    assert again.live == 1024  # the gradient of the input

    saving = Tape(gathers=True)
    saving.drop(two_layers(saving))
    assert saving.live == 2 * 1024  # parameters themselves are saved, whose memory the engine takes


def test_a_second_gradient_is_added_into_a_new_tensor():
    tape = Tape()
    x = tape.value(1024)
    y = op.multiply(tape, x, x)
    tape.drop(x, y)
    tape.restart_peaks()
    tape.backward(y, tape.allocate(1024))
    # saved x, incoming and two products; then the products and their sum; the sum remains
    assert tape.peaks == [4096]
    assert tape.live == 1024


def test_saved_activations_of_a_llama_layer_by_hand():
    # b=4 s=64 bf16. Norms: (4 + 2 + 2) h each plus fp32 row scales; attention: q, k, v, out and
    # log-sum-exp; MLP: 4 f. Measured with DeepSpeed 0.19.8: 694,272 bytes.
    tokens, h, kv, f = 4 * 64, 64, 32, 160
    norms = 2 * (8 * tokens * h + 4 * tokens)
    attention = 2 * tokens * (h + kv + kv + h) + 4 * tokens * 4
    expected = norms + attention + 2 * tokens * 4 * f
    shape = Shape(LLAMA, Attention.SDPA, 4, 64, 2)
    profile = block_profile(shape, ActivationCheckpointing.NONE, gathers=False)
    assert profile.kept == expected == 694_272


def test_a_checkpointed_layer_keeps_its_input_only():
    shape = Shape(LLAMA, Attention.SDPA, 4, 64, 2)
    full = block_profile(shape, ActivationCheckpointing.FULL, gathers=False)
    none = block_profile(shape, ActivationCheckpointing.NONE, gathers=False)
    assert full.kept == 2 * 4 * 64 * 64
    assert full.backward.parameters == none.backward.parameters
    assert full.backward.peaks[0] > none.backward.peaks[0]  # the input beside the recomputation


def test_the_loss_peaks_at_twelve_bytes_per_logit():
    shape = Shape(LLAMA, Attention.SDPA, 4, 64, 2)
    ends = ends_profile(shape, gathers=False)
    logits = 4 * 64 * 512
    assert 12 * logits < ends.last.peaks[0] < 12.9 * logits + 64 * 4 * 64 * 10
    assert 10 * logits < ends.forward_peak < 10 * logits + 64 * 4 * 64 * 10


def test_model_states_by_stage():
    common = {"element": 2, "bucket": 100, "persistence_threshold": 0}
    parameters = np.array([1024, 1024])
    zero = states(parameters, stage=0, ranks=2, **common)
    # 2 + 4 + 8 bytes a parameter, and a step count per tensor
    assert zero.resident == 14 * 2048 + 2 * 512
    assert zero.step_gradients == 4 * 2048
    one = states(parameters, stage=1, ranks=2, **common)
    assert one.resident == 2 * 2048 + 12 * 1024
    assert one.step_gradients + one.step_temporaries == 12 * 1024
    on_gpu = states(parameters, stage=1, ranks=2, cuda=True, **common)
    assert on_gpu.step_gradients + on_gpu.step_temporaries == 8 * 1024
    three = states(parameters, stage=3, ranks=2, **common)
    assert three.resident == (2 + 12 + 2) * 1024 + 2 * 100
    # Building: masters, and the gradients' partitions beside the bucket.
    assert three.initialisation == (2 + 4 + 4) * 1024
    many = states(np.array([4096, 1024]), stage=3, ranks=64, **common)
    assert many.initialisation == 2 * (4096 + 1024) + 512  # all whole, and the first partition
    frozen = states(parameters, frozen=np.array([65536]), stage=3, ranks=4, **common)
    assert frozen.initialisation == 2 * (2048 + 65536) + 2 * 65536 // 4
    fp32 = states(parameters, stage=0, ranks=1, element=4, bucket=1, persistence_threshold=0)
    assert fp32.master == 0
    assert fp32.weights == 4 * 2048


def gradients(*sizes, bucket=100):
    return Gradients(np.array(sizes), element=2, bucket_bytes=2 * bucket)


def test_every_rank_keeps_border_parameters_whole():
    def spans(found, ranks):
        return list(zip(*(ends.tolist() for ends in found.spans(ranks)), strict=True))

    # 400 bytes over 2 ranks: the border at 200 cuts the second parameter, which both keep.
    assert spans(gradients(100, 250, 50), 2) == [(0, 2), (1, 3)]
    assert spans(gradients(100, 100), 2) == [(0, 1), (1, 2)]
    assert spans(gradients(7, 7, 7), 1) == [(0, 3)]


def test_gradients_by_stage():
    few = gradients(400, 400, 200)
    whole = few.track(0, 2, accumulates=False)
    assert whole.walk.before.tolist() == [0, 400, 800, 1000]
    assert whole.after == 2000  # the flat copy that is reduced
    assert set(few.track(0, 2, accumulates=True).walk.before.tolist()) == {1000}
    # Bucket of 800 bytes: two gradients fit, the third reduces them first.
    roomy = gradients(400, 400, 200, bucket=400)
    two = roomy.track(2, 1, accumulates=False)
    assert two.walk.before.tolist() == [0, 800, 800, 1800]
    assert two.walk.handing.tolist() == [800, 800, 1800]
    three = roomy.track(3, 1, accumulates=False)
    assert np.all(three.walk.before == 0)
    assert three.walk.handing.tolist() == [0, 0, 800]  # the interleaved copy of two gradients


@pytest.mark.parametrize("capability", ["", "8.0", "10.0"])
@pytest.mark.parametrize("capacity", [0, 10**9, 2**30 + 1, 85_899_345_920, 10**14 + 7])
@pytest.mark.parametrize("factor", [0.25, 0.77, 1.0, 1.37, 4.0])
@pytest.mark.parametrize("above", [0.0, 0.05, 0.9])
def test_room_is_the_inverse_of_what_is_required(capability, capacity, factor, above):
    correction = Correction(factor=factor, above=above)
    traits = DeviceTraits(emulated=not capability, compute_capability=capability, ranks=2)
    room = room_bytes(capacity, traits, correction=correction)
    needed = required_bytes(room + 1, traits, correction=correction)
    assert needed > capacity
    assert room == -1 or required_bytes(room, traits, correction=correction) <= capacity


def test_an_emulated_device_has_neither_context_nor_allocator():
    peak = Peak(1_000_000, "the loss", (MemoryTerm(name="all", size_bytes=1_000_000),))
    emulated = DeviceTraits(emulated=True, compute_capability="", ranks=2)
    memory = estimate(peak, emulated)
    assert memory.reserved == memory.device == memory.required == memory.allocated
    assert memory.required.high == required_bytes(1_000_000, emulated)
    real = DeviceTraits(emulated=False, compute_capability="8.0", ranks=2)
    bigger = estimate(peak, real, correction=Correction(factor=1.5))
    assert bigger.allocated.expected == sum(t.size_bytes for t in bigger.terms) == 1_500_000
    assert bigger.required.high == required_bytes(
        1_000_000, real, correction=Correction(factor=1.5)
    )
    assert bigger.required.high > 1024**3  # context, communicator, workspace
