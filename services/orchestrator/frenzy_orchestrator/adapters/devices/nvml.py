"""NVIDIA devices through NVML. Without a driver there are simply no devices.

NVML libraries differ in what they export; a call that a library does not know is treated as "not
told", never as a failure of the device.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.ids import DeviceId
from frenzy_shared.units import MIB, format_bytes

log = logging.getLogger(__name__)

# Driver and display take some memory of an idle device; anything above this has an owner.
_IDLE_BYTES = 500 * MIB


class DeviceUse(Protocol):
    """Tells our own use of a device from anybody else's."""

    def is_ours(self, pid: int) -> bool:
        """Tell whether a process belongs to one of this node's attempts."""
        ...

    def is_held(self, device: str) -> bool:
        """Tell whether an attempt of this node holds the device."""
        ...


class NvmlDevices:
    """The NVIDIA devices of this machine, whole ones (MIG instances are not listed)."""

    def __init__(self, use: DeviceUse) -> None:
        """Load NVML; a machine without the driver has no devices."""
        self._use = use
        self._nvml: Any = None
        self._names: dict[str, str] = {}
        try:
            import pynvml  # noqa: PLC0415 - optional: only machines with NVIDIA devices need it
        except ImportError:
            log.info("no NVML bindings (nvidia-ml-py): no NVIDIA devices")
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.info("no NVIDIA devices: %s", error)
            return
        self._nvml = pynvml

    def devices(self) -> tuple[Device, ...]:
        """Return the devices by index; a broken one is listed with its problem if it has a name."""
        if self._nvml is None:
            return ()
        listed = (self._device(index) for index in range(self._nvml.nvmlDeviceGetCount()))
        return tuple(device for device in listed if device is not None)

    def visible_name(self, device: str) -> str:
        """Return the UUID as the driver writes it; CUDA compares it case-sensitively."""
        return self._names.get(device, device)

    def used_bytes(self) -> Mapping[str, int]:
        """Return the memory in use per device."""
        used: dict[str, int] = {}
        for index in range(self._nvml.nvmlDeviceGetCount() if self._nvml else 0):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                used[self._identify(handle)] = self._memory(handle)[1]
            except self._nvml.NVMLError as error:
                log.warning("device %d does not tell its memory: %s", index, error)
        return used

    def _device(self, index: int) -> Device | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = self._identify(handle)
            name = str(nvml.nvmlDeviceGetName(handle))
            usable, used = self._memory(handle)
        except nvml.NVMLError as error:
            log.error("device %d does not answer: %s", index, error)  # noqa: TRY400 - not a bug
            return None
        known = find_gpu(name)
        return Device(
            id=device,
            kind=known.name if known else name,
            memory_bytes=usable,
            compute_capability=self._compute_capability(handle),
            problem=self._problem(device, handle, used),
        )

    def _identify(self, handle: object) -> DeviceId:
        uuid = str(self._nvml.nvmlDeviceGetUUID(handle))
        device = DeviceId(uuid.lower())
        self._names[device] = uuid
        return device

    def _memory(self, handle: object) -> tuple[int, int]:
        """Return the bytes that programs can allocate, and those that are allocated.

        The first version of the call counts what the driver reserves for itself as used.
        """
        told = self._optional(self._nvml.nvmlDeviceGetMemoryInfo, handle, self._nvml.nvmlMemory_v2)
        if told is not None:
            return int(told.total) - int(told.reserved), int(told.used)
        old = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(old.total), int(old.used)

    def _compute_capability(self, handle: object) -> str:
        told = self._optional(self._nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return f"{told[0]}.{told[1]}" if told else ""

    def _problem(self, device: str, handle: object, used_bytes: int) -> str:
        """Say who else uses the device; "" when nobody does."""
        processes = self._processes(handle)
        foreign = [pid for pid in processes if not self._use.is_ours(pid)]
        if foreign:
            pids = ", ".join(str(pid) for pid in foreign[:4])
            return f"used by a process outside Frenzy (pid {pids})"
        if not processes and used_bytes > _IDLE_BYTES and not self._use.is_held(device):
            return f"{format_bytes(used_bytes)} in use by processes that this node cannot see"
        return ""

    def _processes(self, handle: object) -> list[int]:
        """Return the pids on a device; [] where the driver does not tell.

        By version, newest first: the unversioned call fails on every older driver.
        """
        for call in (
            self._nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            self._nvml.nvmlDeviceGetComputeRunningProcesses_v2,
        ):
            told = self._optional(call, handle)
            if told is not None:
                return [int(process.pid) for process in told]
        return []

    def _optional(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - NVML's own types
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None  # not supported by this device or library
