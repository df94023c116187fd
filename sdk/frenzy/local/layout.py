"""Where `frenzy up` keeps things: one folder, kept across restarts."""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frenzy_shared.errors import Misconfigured, StorageFull
from frenzy_shared.units import MIB, format_bytes

_NEEDED_BYTES: Final = 512 * MIB  # both servers stop taking writes on a full disk


@dataclass(frozen=True, slots=True)
class Layout:
    """The files below one root folder."""

    root: Path

    @property
    def logs(self) -> Path:
        """Return the folder of all processes' logs."""
        return self.root / "logs"

    @property
    def configs(self) -> Path:
        """Return the folder of the servers' filled-in configurations (they hold secrets)."""
        return self.root / "etc"

    @property
    def secrets(self) -> Path:
        """Return the file of random credentials, mode 0600."""
        return self.root / "secrets.json"

    @property
    def secrets_key(self) -> Path:
        """Return the file of the keys that seal jobs' secrets, mode 0600."""
        return self.root / "secrets.keys"

    @property
    def bus_users(self) -> Path:
        """Return the file of those who may use the bus; nats-server's include lies beside it."""
        return self.configs / "nats-users.json"

    @property
    def bus_port(self) -> Path:
        """Return the file with the bus's port on loopback: integrations remember it."""
        return self.configs / "bus-port"

    @property
    def keys(self) -> Path:
        """Return the folder of the seeds of this machine's own identities on the bus."""
        return self.root / "keys"

    @property
    def certificates(self) -> Path:
        """Return the folder of the certificate authority and of the server's certificate."""
        return self.root / "tls"

    @property
    def authority(self) -> Path:
        """Return the certificate of this cluster's own authority, when it has one."""
        return self.certificates / "ca.pem"

    @property
    def certificate(self) -> Path:
        """Return the servers' certificate, where other machines may connect."""
        return self.certificates / "server.pem"

    @property
    def joined(self) -> Path:
        """Return the folder of a machine that is a node of a cluster elsewhere."""
        return self.root / "node"

    @property
    def options(self) -> Path:
        """Return what the present or last `up` was asked for."""
        return self.root / "options.json"

    @property
    def status(self) -> Path:
        """Return what the supervisor says about itself."""
        return self.root / "status.json"

    @property
    def lock(self) -> Path:
        """Return the file that a living supervisor holds locked."""
        return self.root / "lock"

    @property
    def up_lock(self) -> Path:
        """Return the file that a working `frenzy up` holds locked."""
        return self.root / "up.lock"

    @property
    def keep_jobs(self) -> Path:
        """Return the file that tells the next stop to leave ranks alone, when it is there."""
        return self.root / "keep-jobs"

    @property
    def blobs(self) -> Path:
        """Return the folder of bundles and data."""
        return self.root / "blobs"

    @property
    def temporary(self) -> Path:
        """Return the folder for what processes and ranks write beside their data (TMPDIR)."""
        return self.root / "tmp"

    @property
    def checkpoints(self) -> Path:
        """Return the folder of checkpoints and models, one below it per job."""
        return self.root / "checkpoints"

    def server(self, name: str) -> Path:
        """Return a server's data folder."""
        return self.root / name

    def node(self, name: str) -> Path:
        """Return a node agent's folder."""
        return self.root / "nodes" / name

    def log(self, name: str) -> Path:
        """Return one process's log."""
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folders and prove that they can be written.

        Raises:
            Misconfigured: the folder cannot be written.
            StorageFull: too little space is left.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folders = (self.logs, self.configs, self.blobs, self.checkpoints, self.temporary)
            for folder in folders:
                folder.mkdir(exist_ok=True)
            probe = self.root / f".probe-{os.getpid()}"
            try:
                probe.write_bytes(b"\0" * 4096)
            finally:
                probe.unlink(missing_ok=True)  # a full disk lets it be made, but not written
        except OSError as error:
            raise cannot_write(self.root, error) from None
        free_bytes = shutil.disk_usage(self.root).free
        if free_bytes < _NEEDED_BYTES:
            raise StorageFull(
                f"only {format_bytes(free_bytes)} are free under {self.root}; "
                f"{format_bytes(_NEEDED_BYTES)} are needed",
                suggestions=("free some space, or set XDG_DATA_HOME to another disk",),
            )


def default_layout() -> Layout:
    """Return the layout below ``$XDG_DATA_HOME/frenzy`` (``~/.local/share/frenzy``)."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Layout(Path(base).absolute() / "frenzy")


def cannot_write(root: Path, error: OSError) -> Misconfigured | StorageFull:
    """Say what to do about a folder that cannot be written, or whose disk is full."""
    hint = "set XDG_DATA_HOME to a folder of yours on a disk with space"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"the disk under {root} is full", suggestions=(hint,))
    return Misconfigured(
        f"cannot write {error.filename or root}: {error.strerror}", suggestions=(hint,)
    )
