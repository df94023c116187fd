"""What the agent may ask about its node's devices."""

from collections.abc import Mapping
from typing import Protocol

from frenzy_shared.domain.cluster import Device


class DeviceInventory(Protocol):
    """The devices of this node, looked at anew on every call. Calls may block for milliseconds."""

    def devices(self) -> tuple[Device, ...]:
        """Return every device; one that must not get work says why in ``problem``."""
        ...

    def visible_name(self, device: str) -> str:
        """Return what CUDA_VISIBLE_DEVICES calls the device, "" for an emulated one."""
        ...

    def used_bytes(self) -> Mapping[str, int]:
        """Return the memory in use per device, as far as the hardware tells."""
        ...
