"""Device inventories: emulated, and NVML through a fake library's bindings."""

import sys
from types import SimpleNamespace

import pytest

from frenzy_orchestrator.adapters.devices.emulated import EmulatedDevices
from frenzy_orchestrator.adapters.devices.nvml import NvmlDevices
from frenzy_orchestrator.adapters.devices.use import AttemptUse, lock_path
from frenzy_orchestrator.shim import locks
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import GIB, MIB


class Use:
    def __init__(self, ours=(), held=()):
        self.ours, self.held = ours, held

    def is_ours(self, pid):
        return pid in self.ours

    def is_held(self, device):
        return device in self.held


class FakeNvml:
    """The part of pynvml that the adapter calls."""

    nvmlMemory_v2 = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus, driver=True):
        self.gpus = gpus
        self.driver = driver

    def nvmlInit(self):
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        return gpu["uuid"]

    def nvmlDeviceGetName(self, gpu):
        if "broken" in gpu:
            raise self.NVMLError("GPU is lost")
        return gpu["name"]

    def nvmlDeviceGetMemoryInfo(self, gpu, version=None):
        if version and "reserved" not in gpu:
            raise self.NVMLError("Function Not Found")
        return SimpleNamespace(
            total=gpu["total"], used=gpu.get("used", 0), reserved=gpu.get("reserved")
        )

    def nvmlDeviceGetCudaComputeCapability(self, gpu):
        return gpu["cc"]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        if "processes" not in gpu:
            raise self.NVMLError("Not Supported")
        return [SimpleNamespace(pid=pid) for pid in gpu["processes"]]


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
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus, driver=driver))
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
    assert device.kind == "A100 SXM4 80GB" or "A100" in device.kind
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
    import os

    os.close(held)
    assert not use.is_held("gpu-1")
    assert not use.is_ours(os.getpid())
