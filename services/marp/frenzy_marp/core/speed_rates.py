"""What a device and its links do per second: published peaks, and the shares that code reaches."""

from dataclasses import dataclass
from typing import Final

from frenzy_shared.catalog.gpus import GpuModel
from frenzy_shared.domain.cluster import KindSummary
from frenzy_shared.domain.model import ModelArchitecture
from frenzy_shared.domain.plan import Precision

_SWITCHED: Final = 100e9  # slower NVLinks are bridges between two cards, bytes per second
_NETWORK_BYTES_S: Final = 12.5e9  # between nodes: 100 Gb/s, the usual cluster network
# Published MFU on H100 is 0.67 to 0.75 of that on A100, from 1.3B to 30B (llm-foundry's table).
_HOPPER: Final = 0.72
_NARROW: Final = 200  # hidden size at which a tensor core reaches half its share


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """What code reaches of published peaks, and how often it moves what: fitted, not learned.

    The values are those that fit the layer profiles of Sailor (SOSP'25) best; benchmarks/speed
    fits them again with each kind of GPU left out. The rest is counted or published.
    """

    vector_share: float = 0.9  # of the fp32 peak, by matrix products without tensor cores
    tensor_share: float = 0.62  # of a tensor core's peak
    activation_passes: float = 4.0  # forward and backward, of what is as wide as a layer
    score_passes: float = 25.0  # of eager attention: scaling, mask, softmax, dropout, copies
    host_share: float = 0.64  # of PCIe, by collectives through it
    bandwidth_share: float = 0.8  # of the memory's, by elementwise kernels
    link_share: float = 0.8  # of one direction, by ring collectives: 0.78 on A100, 0.82 on H200


PRIORS: Final = Priors()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one device does per second, and what one operator or message costs, in seconds.

    ``queued``: the processor runs ahead, so that launching hides behind computing.
    """

    flops: float
    bandwidth: float
    operator_s: float
    queued: bool
    messages_s: tuple[float, float]  # inside a node, and beyond
    start_up_s: float


def rates(
    model: ModelArchitecture,
    precision: Precision,
    kind: KindSummary,
    gpu: GpuModel,
    *,
    tf32: bool = False,
    priors: Priors = PRIORS,
) -> Rates:
    """Return the rates at which a model trains on a kind of device.

    ``tf32``: products in fp32 may use it; torch does so only when a script asks.
    """
    bandwidth = gpu.bandwidth * priors.bandwidth_share * kind.relative_speed
    if gpu.emulated or kind.emulated:
        # Matrix kernels of one core reach their rate; the accountant adds to every operator.
        return Rates(
            flops=peak_flops(precision, gpu) * kind.relative_speed,
            bandwidth=bandwidth,
            operator_s=25e-6 / kind.relative_speed,
            queued=False,
            messages_s=(0.4e-3, 0.4e-3),
            start_up_s=15.0,
        )
    tensor = priors.tensor_share * model.hidden_size / (model.hidden_size + _NARROW)
    tensor *= _HOPPER if gpu.compute_capability.startswith("9.") else 1.0
    if precision is Precision.FP32:
        asked = (gpu.tf32_flops or 0.0) * tensor if tf32 else 0.0
        flops = max(gpu.fp32_flops * priors.vector_share, asked)
    else:
        flops = gpu.tensor_flops * tensor
    return Rates(
        flops=flops * kind.relative_speed,
        bandwidth=bandwidth,
        operator_s=5e-6,
        queued=True,
        messages_s=(20e-6, 30e-6),
        start_up_s=60.0,
    )


def peak_flops(precision: Precision, gpu: GpuModel) -> float:
    """Return the published peak of matrix products in a precision."""
    return gpu.fp32_flops if precision is Precision.FP32 else gpu.tensor_flops


def ring_bytes_s(gpu: GpuModel, ranks: int, *, beyond: bool, priors: Priors = PRIORS) -> float:
    """Return what each rank of a ring sends per second, inside a node or ``beyond`` it.

    ``ranks`` are of one node. Bridges join two cards; more of such cards share the host's PCIe.
    """
    linked = gpu.link > gpu.host_link and (ranks <= 2 or gpu.link >= _SWITCHED)
    inside = gpu.link * priors.link_share
    if not (linked or gpu.emulated):
        inside = gpu.host_link * priors.host_share * min(1.0, 2 / ranks)
    return min(inside, _NETWORK_BYTES_S * priors.link_share) if beyond else inside
