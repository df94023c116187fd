"""GPU models by the name that a driver reports. The facts are in ``gpus.csv``, with sources.

Names are matched whole, never by prefix: "H200 NVL" is not an "H200", "A100-SXM-64GB" is not an
"A10", a laptop card is not the desktop card of the same number. A name that nobody knows gives
an assumed model (``assumed_gpu``), and whoever uses one says so. Board power is the vendor's
data-sheet figure; it only feeds energy estimates. TF32 is dense, from the architectures' white
papers: half the bf16 rate since Ampere. torch computes in it only when asked to, so plans in fp32
do not count on it.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, TypeAlias

from frenzy_shared.errors import InvalidSpec

EMULATED_PREFIX: Final = "emulated-"
GB: Final = 10**9
TERA: Final = 1e12

# One process of a present-day CPU core, as the accountant's emulated devices run: measured
# 2-7k tokens/s on models of about a million parameters, which is 15-40 GFLOPS.
_EMULATED_FLOPS: Final = 30e9
_EMULATED_BANDWIDTH: Final = 8e9
_EMULATED_LINK: Final = 0.5e9
_EMULATED_POWER_W: Final = 15.0

_FIRST_WITH_BF16: Final = 8  # compute capability, major
_INSTANCE: Final = re.compile(r"(.+) MIG (?:\d+c\.)?(\d+)g\.(\d+)gb(?:\+\S+)?", re.IGNORECASE)
_SLICES: Final = {"A30": 4}  # of a partitioned GPU; all others have 7


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One GPU model. Rates are dense peaks per second; links are one direction, bytes per second.

    ``tensor_flops`` holds for bf16 (where ``bf16``) and fp16 with fp32 accumulation.
    ``memory_bytes`` is the nominal size: for planning, what the node measured counts instead.
    ``link`` joins GPUs inside a node and equals ``host_link`` where there is no NVLink.
    """

    name: str
    vendor: str
    compute_capability: str  # "8.0", "gfx942"; "" when unknown
    memory_bytes: int
    bf16: bool
    fp16: bool
    tensor_flops: float
    fp32_flops: float
    bandwidth: float
    link: float
    host_link: float
    board_power_w: float
    tf32_flops: float | None = None  # None: the device has none, or nobody published it
    emulated: bool = False
    assumed: bool = False  # not in the catalogue: rates of a modest card of its age
    collectives: bool = True  # False: cannot train together with others (MIG instances)
    sources: str = ""


OwnGpu: TypeAlias = tuple[GpuModel, re.Pattern[str]]

_OWN: Final[list[OwnGpu]] = []  # before the shipped ones; set by composition roots only


def use_own_gpus(gpus: Iterable[OwnGpu]) -> None:
    """Look GPUs up among ``gpus`` first; called once, when a process starts."""
    _OWN[:] = gpus
    find_gpu.cache_clear()


@lru_cache(maxsize=1024)
def find_gpu(name: str) -> GpuModel | None:
    """Return the model that a driver, or the catalogue, calls ``name``; None when unknown.

    Kinds that start with "emulated-" are emulations on a CPU, whatever follows. An instance of a
    partitioned GPU ("... MIG 3g.40gb") gets its share of the whole one.
    """
    text = name.strip()
    if text.startswith(EMULATED_PREFIX):
        return _emulated(text)
    bare = re.sub(r"^(?:NVIDIA|AMD|Intel) ", "", text)
    for gpu, pattern in (*_OWN, *_table()):
        if text == gpu.name or pattern.fullmatch(bare):
            return gpu
    instance = _INSTANCE.fullmatch(text)
    return None if instance is None else _instance(text, instance)


def named_gpu(name: str) -> GpuModel:
    """Return a GPU as a driver calls it, or as people do: "a100 sxm4 80gb" is enough if clear.

    Raises:
        InvalidSpec: several GPUs match, or none does.
    """
    found = find_gpu(name)
    if found is not None:
        return found
    words = name.lower().replace("-", " ").split()
    alike = [gpu for gpu in all_gpus() if all(word in gpu.name.lower() for word in words)]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(gpu.name for gpu in alike or all_gpus())
    kind = "several GPUs match" if alike else "no GPU is called"
    raise InvalidSpec(f"{kind} {name[:80]!r}", suggestions=[f"one of: {names}"])


def assumed_gpu(name: str, memory_bytes: int, compute_capability: str) -> GpuModel:
    """Return a model for a device that the catalogue does not know, from what it reports.

    Its memory is what the node measured, its rates are those of a modest card of its age.
    """
    major = compute_capability.partition(".")[0]
    modern = major.isdigit() and int(major) >= _FIRST_WITH_BF16
    reference = find_gpu("A10" if modern else "T4")
    if reference is None:
        raise AssertionError("the catalogue lost its reference models")
    return replace(
        reference,
        name=name,
        compute_capability=compute_capability,
        memory_bytes=memory_bytes,
        assumed=True,
        sources=f"assumption: as fast as {reference.name}",
    )


def all_gpus() -> tuple[GpuModel, ...]:
    """Return every GPU model, one's own first, then in the order of the data file."""
    return tuple(gpu for gpu, _ in (*_OWN, *_table()))


@cache
def _table() -> tuple[tuple[GpuModel, re.Pattern[str]], ...]:
    text = files("frenzy_shared.catalog").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(_entry(row) for row in csv.DictReader(text.splitlines()))


def _entry(row: dict[str, str]) -> tuple[GpuModel, re.Pattern[str]]:
    fp32 = float(row["fp32_tflops"] or row["tensor_tflops"]) * TERA
    tensor = float(row["tensor_tflops"] or row["fp32_tflops"]) * TERA
    host_link = float(row["host_link_gb_s"] or 16) * GB
    mib = row["memory_driver_mib"]
    gpu = GpuModel(
        name=row["name"],
        vendor=row["vendor"],
        compute_capability=row["compute_capability"].removeprefix("n/a").split(" ")[-1],
        memory_bytes=int(mib) * 1024**2 if mib else int(float(row["memory_gb"]) * 1024**3),
        bf16=row["bf16"] == "yes",
        fp16=True,
        tensor_flops=tensor,
        fp32_flops=fp32,
        bandwidth=float(row["bandwidth_gb_s"]) * GB,
        link=float(row["link_gb_s"] or 0) * GB or host_link,
        host_link=host_link,
        board_power_w=float(row["board_power_w"]),
        tf32_flops=float(row["tf32_tflops"]) * TERA if row["tf32_tflops"] else None,
        sources=row["sources"],
    )
    return gpu, re.compile(row["pattern"], re.IGNORECASE)


def _instance(name: str, parts: re.Match[str]) -> GpuModel | None:
    """Return an instance's share of its GPU: compute by slices, bandwidth by memory."""
    whole = find_gpu(parts[1])
    if whole is None:
        return None
    slices, size = int(parts[2]), int(parts[3]) * 1024**3
    share = slices / _SLICES.get(whole.name, 7)
    return replace(
        whole,
        name=name,
        memory_bytes=size,
        tensor_flops=whole.tensor_flops * share,
        tf32_flops=whole.tf32_flops and whole.tf32_flops * share,
        fp32_flops=whole.fp32_flops * share,
        bandwidth=whole.bandwidth * min(1.0, size / whole.memory_bytes),
        link=whole.host_link,
        board_power_w=whole.board_power_w * share,
        collectives=False,
        sources=f"its share of {whole.name}",
    )


def _emulated(kind: str) -> GpuModel:
    return GpuModel(
        name=kind,
        vendor="emulated",
        compute_capability="",
        memory_bytes=0,
        bf16=True,
        fp16=False,  # DeepSpeed refuses fp16 on a CPU
        tensor_flops=_EMULATED_FLOPS,
        fp32_flops=_EMULATED_FLOPS,
        bandwidth=_EMULATED_BANDWIDTH,
        link=_EMULATED_LINK,
        host_link=_EMULATED_LINK,
        board_power_w=_EMULATED_POWER_W,
        emulated=True,
        sources="assumption: one CPU core",
    )
