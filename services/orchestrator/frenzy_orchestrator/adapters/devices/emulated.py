"""Emulated devices: ranks on CPU whose memory the trainer's accountant limits."""

from collections.abc import Mapping
from dataclasses import replace

from frenzy_shared.domain.cluster import Device
from frenzy_shared.domain.ids import DeviceId, is_name
from frenzy_shared.errors import Misconfigured
from frenzy_shared.units import parse_bytes

_MOST_DEVICES = 256


class EmulatedDevices:
    """A fixed set of emulated devices."""

    def __init__(self, text: str) -> None:
        """Read ``kind:count:memory:speed`` groups, separated by commas.

        Raises:
            Misconfigured: naming the group and the rule that it breaks.
        """
        groups = [_parse_group(group.strip()) for group in text.split(",")]
        self._devices = tuple(
            replace(device, id=DeviceId(f"emu{number}"))
            for number, device in enumerate(device for group in groups for device in group)
        )
        if not 0 < len(self._devices) <= _MOST_DEVICES:
            raise Misconfigured(
                f"FRENZY_EMULATED_DEVICES names {len(self._devices)} devices; 1-{_MOST_DEVICES}"
            )

    def devices(self) -> tuple[Device, ...]:
        """Return the devices; emulated ones are always healthy."""
        return self._devices

    def visible_name(self, device: str) -> str:  # noqa: ARG002 - CUDA must see none
        """Return ""."""
        return ""

    def used_bytes(self) -> Mapping[str, int]:
        """Return nothing: what an emulated device holds is known from its rank's reports."""
        return {}


def _parse_group(group: str) -> list[Device]:
    try:
        kind, count, memory, speed = group.split(":")
        memory_bytes, number, relative = parse_bytes(memory), int(count), float(speed)
    except ValueError as error:
        raise _wrong(group, str(error)) from None
    if not kind.startswith("emulated-") or not is_name(kind):
        raise _wrong(group, f"the kind {kind!r} must look like emulated-<name>")
    if not 1 <= number <= _MOST_DEVICES:
        raise _wrong(group, f"the count {number} is not in 1-{_MOST_DEVICES}")
    if not 0 < relative <= 100:
        raise _wrong(group, f"the speed {relative:g} is not in 0-100")
    device = Device(
        id=DeviceId(""),  # numbered over all groups by the caller
        kind=kind,
        memory_bytes=memory_bytes,
        emulated=True,
        relative_speed=relative,
    )
    return [device] * number


def _wrong(group: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"FRENZY_EMULATED_DEVICES: {group!r}: {why}",
        suggestions=("write kind:count:memory:speed, e.g. emulated-a100:2:384MiB:1.0",),
    )
