"""Get an attempt ready on this node, or say exactly why not. Nothing is started here."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_orchestrator.adapters.copying import copy_in_child
from frenzy_orchestrator.adapters.devices.port import DeviceInventory
from frenzy_orchestrator.adapters.devices.use import lock_path
from frenzy_orchestrator.adapters.journal import AttemptFolder
from frenzy_orchestrator.adapters.threads import in_own_thread
from frenzy_orchestrator.shim import locks
from frenzy_orchestrator.shim.files import write_atomically
from frenzy_shared.blobs.port import BlobStore
from frenzy_shared.domain.job import StopReason
from frenzy_shared.errors import (
    BlobCorrupt,
    BlobMissing,
    FrenzyError,
    InvalidSpec,
    StorageFull,
    Unavailable,
)
from frenzy_shared.messages.codec import to_json
from frenzy_shared.messages.v1 import DesiredAttempt
from frenzy_shared.units import format_bytes

_RETRY_S: Final = 1.0  # between tries when the blob store cannot be reached
_LOCK_WAIT_S: Final = 5.0  # the attempt before may still be closing its devices
_LOOK_S: Final = 5.0  # a mount that has not answered for so long tells nothing

Unpack = Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the attempt cannot run here."""

    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where a prepared attempt's inputs lie; "" is absent."""

    data: str
    tokenizer: str
    checkpoints: str
    resume_from: str


class Preparation:
    """Checks and fetches. ``unpack`` turns a fetched bundle into a folder, safely."""

    def __init__(
        self,
        *,
        data_dir: Path,
        checkpoints_dir: Path,
        min_free_bytes: int,
        inventory: DeviceInventory,
        blobs: BlobStore,
        unpack: Unpack,
    ) -> None:
        """Make no folder yet."""
        self._data_dir = data_dir
        self._checkpoints_dir = checkpoints_dir
        self._min_free_bytes = min_free_bytes
        self._inventory = inventory
        self._blobs = blobs
        self._unpack = unpack

    async def prepare(self, folder: AttemptFolder) -> Inputs | Refused:
        """Make everything ready; repeating it after a crash is fine.

        Waits while the blob store is unreachable: the control plane has the time limit.
        """
        order = folder.journal.order
        while True:
            try:
                await self._check_devices(order)
                await in_own_thread(self._check_space)  # it may be a mount that hangs
                await self._fetch(folder)
                await in_own_thread(lambda: self._check_inputs(folder))
                await _copy_workdir(folder)
                return await in_own_thread(lambda: self._lay_out(folder))
            except _Refusal as refusal:
                return Refused(refusal.reason, refusal.message)
            except StorageFull as error:
                return Refused(StopReason.LAUNCH_REFUSED, error.message)
            except Unavailable:
                await asyncio.sleep(_RETRY_S)
            except OSError as error:
                reason = StopReason.LAUNCH_REFUSED
                return Refused(reason, f"cannot prepare {folder.path.name}: {error}")

    async def lack_of_space(self) -> str:
        """Describe a folder with less free space than an attempt needs; "": none is known."""
        try:
            async with asyncio.timeout(_LOOK_S):
                return await in_own_thread(self._lack_of_space)
        except (TimeoutError, OSError):  # a mount that hangs or is gone
            return ""

    async def _check_devices(self, order: DesiredAttempt) -> None:
        present = {device.id: device for device in await in_own_thread(self._inventory.devices)}
        for assignment in order.ranks:
            device = present.get(assignment.device)  # type: ignore[call-overload]
            if device is None:
                raise _Refusal(f"there is no device {assignment.device} here")
            if device.problem:
                raise _Refusal(f"device {device.id}: {device.problem}")
            path = lock_path(self._data_dir, assignment.device)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not await asyncio.to_thread(_wait_free, path):
                raise _Refusal(f"device {device.id} is still held by another attempt")

    def _check_space(self) -> None:
        if lack := self._lack_of_space():
            raise _Refusal(f"only {lack}; {format_bytes(self._min_free_bytes)} are needed")

    def _lack_of_space(self) -> str:
        for folder in (self._data_dir, self._checkpoints_dir):
            folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(folder).free
            if free < self._min_free_bytes:
                return f"{format_bytes(free)} free under {folder}"
        return ""

    async def _fetch(self, folder: AttemptFolder) -> None:
        spec = folder.journal.order.spec
        if spec is None:
            raise _Refusal("the order has no job specification")
        folder.work.mkdir(exist_ok=True)
        for what, reference in (
            ("workdir", spec.workdir),
            ("data", spec.data),
            ("tokenizer", spec.tokenizer),
        ):
            if reference is not None and reference.startswith("blob:"):
                target = folder.work if what == "workdir" else folder.path / what
                await self._fetch_blob(what, reference.removeprefix("blob:"), target)

    async def _fetch_blob(self, what: str, digest: str, target: Path) -> None:
        archive = target.with_name(f"{target.name}.bundle")
        try:
            await self._blobs.fetch(digest, archive)
            shutil.rmtree(target, ignore_errors=True)  # a crash may have left a part
            await in_own_thread(lambda: self._unpack(archive, target))
        except (BlobMissing, BlobCorrupt) as error:
            raise _Refusal(f"{what}: {error.message}", StopReason.DATA_ERROR) from error
        except Unavailable:
            raise
        except FrenzyError as error:  # not a bundle, or one that tries to escape its folder
            raise _Refusal(f"{what} {digest}: {error.message}", StopReason.DATA_ERROR) from error
        finally:
            archive.unlink(missing_ok=True)

    def _check_inputs(self, folder: AttemptFolder) -> None:
        spec = folder.journal.order.spec
        if spec is None:
            raise _Refusal("the order has no job specification")
        inputs = self.inputs(folder)
        for what, reference in (("data", spec.data), ("tokenizer", spec.tokenizer)):
            if reference is not None:
                _check_readable(what, Path(getattr(inputs, what)))

    def _lay_out(self, folder: AttemptFolder) -> Inputs:
        """Check what the ranks start from and write the files that they read."""
        order = folder.journal.order
        if order.spec is None or order.plan is None:
            raise _Refusal("the order has no job specification or no plan")
        inputs = self.inputs(folder)
        if order.spec.entrypoint is not None:
            _check_script(folder.work, order.spec.entrypoint.script)
        Path(inputs.checkpoints).mkdir(parents=True, exist_ok=True)
        if inputs.resume_from and not Path(inputs.resume_from).is_dir():
            raise _Refusal(
                f"checkpoint {inputs.resume_from} is not on this node", StopReason.CHECKPOINT_ERROR
            )
        for assignment in order.ranks:
            folder.rank(assignment.rank).mkdir(parents=True, exist_ok=True)
        folder.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(folder.path / "plan.json", json.dumps(_plan_file(order)).encode())
        config = json.dumps(dict(order.plan.deepspeed_config))
        write_atomically(folder.path / "deepspeed.json", config.encode())
        return inputs

    def inputs(self, folder: AttemptFolder) -> Inputs:
        """Return where the inputs of a prepared attempt lie."""
        order = folder.journal.order
        spec = order.spec
        checkpoints = self._checkpoints_dir / order.job
        step = order.resume_step
        return Inputs(
            data=_located(spec.data if spec else None, folder.path / "data"),
            tokenizer=_located(spec.tokenizer if spec else None, folder.path / "tokenizer"),
            checkpoints=str(checkpoints),
            resume_from=str(checkpoints / f"step-{step}") if step is not None else "",
        )


class _Refusal(Exception):
    def __init__(self, message: str, reason: StopReason = StopReason.LAUNCH_REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


def _wait_free(path: Path) -> bool:
    try:
        (held,) = locks.take([str(path)], within_s=_LOCK_WAIT_S)
    except BlockingIOError:
        return False
    os.close(held)
    return True


def _located(reference: str | None, unpacked: Path) -> str:
    """Return the path of a reference; a bundle of one file is that file."""
    if reference is None:
        return ""
    if reference.startswith("node:"):
        return reference.removeprefix("node:")
    entries = list(unpacked.iterdir()) if unpacked.is_dir() else []
    return str(entries[0] if len(entries) == 1 and entries[0].is_file() else unpacked)


def _check_readable(what: str, path: Path) -> None:
    """Refuse inputs that are missing, empty or not readable, naming the path."""
    if not path.exists():
        raise _Refusal(f"{what}: {path} does not exist on this node", StopReason.DATA_ERROR)
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise _Refusal(f"{what}: {path} is not readable by the agent", StopReason.DATA_ERROR)
    empty = not any(path.iterdir()) if path.is_dir() else path.stat().st_size == 0
    if empty:
        raise _Refusal(f"{what}: {path} is empty", StopReason.DATA_ERROR)


async def _copy_workdir(folder: AttemptFolder) -> None:
    """Copy a work folder that is already on the node: ranks may write into their own copy."""
    spec = folder.journal.order.spec
    reference = spec.workdir if spec is not None else None
    if reference is None or not reference.startswith("node:"):
        return
    source = Path(reference.removeprefix("node:"))
    if not await in_own_thread(source.is_dir):
        raise _Refusal(f"workdir: {source} is not a folder on this node", StopReason.DATA_ERROR)
    try:
        await copy_in_child(source, folder.work)
    except InvalidSpec as error:
        raise _Refusal(f"workdir: {error.message}", StopReason.DATA_ERROR) from error


def _check_script(work: Path, script: str) -> None:
    path = (work / script).resolve()
    if not path.is_relative_to(work.resolve()) or not path.is_file():
        raise _Refusal(f"entrypoint: there is no {script} in workdir", StopReason.DATA_ERROR)


def _plan_file(order: DesiredAttempt) -> Mapping[str, object]:
    return {
        "job": order.job,
        "attempt": order.attempt,
        "rank_devices": [
            {"rank": entry.rank, "local_rank": entry.local_rank, "device": entry.device}
            for entry in order.ranks
        ],
        "continues": to_json(order.continues) if order.continues else None,
        "spec": order.spec.model_dump(mode="json") if order.spec else None,
        "plan": to_json(order.plan) if order.plan else None,
    }
