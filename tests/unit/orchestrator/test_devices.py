"""Device inventories: emulated, and NVML through a fake library's bindings."""

import os
import sys

import pynvml
import pytest

from frenzy_orchestrator.adapters.devices.emulated import EmulatedDevices
from frenzy_orchestrator.adapters.devices.nvml import NvmlDevices
from frenzy_orchestrator.adapters.devices.use import AttemptUse, lock_path
from frenzy_orchestrator.shim import locks
from frenzy_shared.catalog.gpus import find_gpu
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import GIB, MIB


class Use:
    def __init__(self, ours=(), held=()):
        self.ours, self.held = ours, held

    def is_ours(self, pid):
        return pid in self.ours

    def is_held(self, device):
        return device in self.held


class FakeLibrary:
    """libnvidia-ml as the real bindings (pynvml) call it; what it does not define, it lacks."""

    def __init__(self, *gpus, driver=True):
        self.gpus = gpus
        self.driver = driver

    def function(self, name):
        found = getattr(self, name, None)
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return found

    def nvmlInitWithFlags(self, flags):
        return 0 if self.driver else pynvml.NVML_ERROR_DRIVER_NOT_LOADED

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        self.index = index.value  # one caller at a time: the handle is the last index
        return 0

    def nvmlDeviceGetUUID(self, handle, buffer, size):
        buffer.value = self.gpu["uuid"].encode()
        return 0

    def nvmlDeviceGetName(self, handle, buffer, size):
        buffer.value = self.gpu["name"].encode()
        return pynvml.NVML_ERROR_GPU_IS_LOST if "broken" in self.gpu else 0

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        reserved = self.gpu.get("reserved", 0)  # counted as used by this version
        memory._obj.total, memory._obj.used = self.gpu["total"], self.gpu.get("used", 0) + reserved
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, handle, memory):
        memory._obj.total, memory._obj.used = self.gpu["total"], self.gpu.get("used", 0)
        memory._obj.reserved = self.gpu.get("reserved", 0)
        return 0 if "reserved" in self.gpu else pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

    def nvmlDeviceGetCudaComputeCapability(self, handle, major, minor):
        major._obj.value, minor._obj.value = self.gpu["cc"]
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle, count, found):
        pids = self.gpu.get("processes")
        if pids is None:
            return pynvml.NVML_ERROR_NOT_SUPPORTED
        if found is None:
            count._obj.value = len(pids)
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE if pids else 0
        count._obj.value = len(pids)
        for slot, pid in zip(found, pids, strict=False):
            slot.pid = pid
        return 0

    @property
    def gpu(self):
        return self.gpus[self.index]


def a100(**fields):
    return {
        "uuid": "GPU-AbCd",
        "name": "NVIDIA A100-SXM4-80GB",
        "total": 80 * GIB,
        "cc": (8, 0),
        **fields,
    }


@pytest.fixture
def inventory(monkeypatch):
    def make(*gpus, use=None, driver=True):
        library = FakeLibrary(*gpus, driver=driver)
        monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", library.function)
        return NvmlDevices(use or Use())

    return make


def test_emulated_devices():
    devices = EmulatedDevices("emulated-a:2:384MiB:1.0, emulated-b:1:1GiB:0.5").devices()
    assert [device.id for device in devices] == ["emu0", "emu1", "emu2"]
    assert [device.kind for device in devices] == ["emulated-a", "emulated-a", "emulated-b"]
    assert devices[2].memory_bytes == GIB
    assert devices[2].relative_speed == 0.5
    assert all(device.emulated for device in devices)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("emulated-a", "emulated-a"),
        ("a100:1:1GiB:1", "emulated-<name>"),
        ("emulated-a:0:1GiB:1", "count 0"),
        ("emulated-a:x:1GiB:1", "'x'"),
        ("emulated-a:1:lots:1", "lots"),
        ("emulated-a:1:1GiB:nan", "speed"),
        ("emulated-a:1:1GiB:0", "speed"),
        ("emulated-a:1:1GiB:1,", "''"),
        ("emulated-a:200:1GiB:1,emulated-b:200:1GiB:1", "400"),
    ],
)
def test_a_wrong_emulation_is_named(text, named):
    with pytest.raises(Misconfigured, match="FRENZY_EMULATED_DEVICES") as caught:
        EmulatedDevices(text)
    assert named in caught.value.message


def test_nvml_devices(inventory):
    nvml = inventory(a100(reserved=600 * MIB, used=200 * MIB, processes=[]))
    (device,) = nvml.devices()
    assert device.id == "gpu-abcd"
    assert device.kind == find_gpu("NVIDIA A100-SXM4-80GB").name
    assert device.memory_bytes == 80 * GIB - 600 * MIB
    assert device.compute_capability == "8.0"
    assert device.problem == ""
    assert nvml.visible_name("gpu-abcd") == "GPU-AbCd"
    assert nvml.used_bytes() == {"gpu-abcd": 200 * MIB}


def test_a_foreign_process_is_a_problem_and_ours_is_not(inventory):
    (device,) = inventory(a100(processes=[41, 42]), use=Use(ours={41})).devices()
    assert "42" in device.problem
    assert "41" not in device.problem
    (device,) = inventory(a100(processes=[41]), use=Use(ours={41})).devices()
    assert device.problem == ""


def test_memory_of_invisible_processes_is_a_problem_unless_we_hold_the_device(inventory):
    busy = a100(used=3 * GIB, processes=[])
    assert "3.00 GiB" in inventory(busy).devices()[0].problem
    assert inventory(busy, use=Use(held={"gpu-abcd"})).devices()[0].problem == ""


def test_an_old_library_and_a_broken_device(inventory):
    nvml = inventory(a100(), a100(broken=True, uuid="GPU-2"))
    (device,) = nvml.devices()
    assert device.memory_bytes == 80 * GIB


def test_a_newer_driver_lists_processes_too(inventory, monkeypatch):
    monkeypatch.setattr(
        FakeLibrary,
        "nvmlDeviceGetComputeRunningProcesses_v3",
        FakeLibrary.nvmlDeviceGetComputeRunningProcesses_v2,
        raising=False,
    )
    (device,) = inventory(a100(processes=[42])).devices()
    assert "42" in device.problem


def test_a_machine_without_the_library_has_no_devices():
    devices = NvmlDevices(Use()).devices()
    assert all(not device.emulated for device in devices)  # [] here; real ones on a GPU machine


def test_no_driver_no_bindings_no_devices(inventory, monkeypatch):
    assert inventory(driver=False).devices() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert NvmlDevices(Use()).devices() == ()
    assert NvmlDevices(Use()).used_bytes() == {}


def test_our_use_is_known_by_lock_and_marker(tmp_path):
    use = AttemptUse(tmp_path)
    path = lock_path(tmp_path, "gpu-1")
    assert not use.is_held("gpu-1")
    path.parent.mkdir()
    (held,) = locks.take([str(path)], within_s=0)
    assert use.is_held("gpu-1")
    os.close(held)
    assert not use.is_held("gpu-1")
    assert not use.is_ours(os.getpid())
