"""The cache folder that holds every provisioned environment, and who may write it.

One folder for all checkouts of the project: ``SPECORACLE_HOME``, else the platform's user cache folder. Below it one
folder per Python and platform, because compiled packages fit only theirs. One lock guards all writing: two cold starts
at once would otherwise download torch twice, and the price (one of them waits, and says so) is small.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from fuzz.engines.spec import EngineError

Progress = Callable[[str, float | None], None]

LOCK_DEADLINE_S = 3600  # longer than a cold start over a slow network
LOCK_POLL_S = 0.5
SCRAP_PREFIX = ".scrap-"  # unfinished and replaced folders: never read, deleted by the next writer


@dataclass(frozen=True)
class Home:
    """Folders of one cache: ``layers`` (shared packages) and ``engines`` (one overlay per version)."""

    root: Path

    @classmethod
    def locate(cls, root: Path | None = None) -> Home:
        """The cache folder of this user; it need not exist. Raises `EngineError` where none can exist or be read."""
        chosen = root or os.environ.get("SPECORACLE_HOME") or None
        try:
            chosen = chosen or platformdirs.user_cache_dir("specoracle")
            home = cls(Path(chosen).expanduser().resolve())
            with suppress(FileNotFoundError, NotADirectoryError):  # `writing` makes it, or says why it cannot
                os.stat(home.engines)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home folder, or links in a circle
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise EngineError(
                f"no cache folder can be used at {chosen or 'the default place'}: {reason}; "
                "set SPECORACLE_HOME to a folder that you may write"
            ) from None
        return home

    @property
    def platform(self) -> Path:
        return self.root / f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"

    @property
    def layers(self) -> Path:
        return self.platform / "layers"

    @property
    def engines(self) -> Path:
        return self.platform / "engines"

    @contextmanager
    def writing(self, progress: Progress) -> Iterator[None]:
        """Be the only writer. Raises `EngineError` when the folder cannot be written or another writer never ends.

        The lock belongs to the process and goes with it, so a killed provisioning leaves nothing to clear by hand; the
        scraps it left are deleted here.
        """
        try:
            self.layers.mkdir(parents=True, exist_ok=True)
            self.engines.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.root / "provision.lock")
            self._acquire(lock, progress)
        except OSError as error:
            raise EngineError(
                f"cannot write the cache folder {self.root}: {error.strerror or error}; "
                "set SPECORACLE_HOME to a folder on a disk with room that you may write"
            ) from error
        try:
            self.sweep()
            yield
        finally:
            lock.release()

    def _acquire(self, lock: filelock.BaseFileLock, progress: Progress) -> None:
        deadline = time.monotonic() + LOCK_DEADLINE_S
        told = False
        while True:
            try:
                lock.acquire(timeout=LOCK_POLL_S if told else 0)
                return
            except filelock.Timeout:
                if not told:
                    progress(f"waiting: another process is provisioning in {self.root}", None)
                    told = True
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"another process has been provisioning in {self.root} for {LOCK_DEADLINE_S // 60} minutes; "
                        "end it, or set SPECORACLE_HOME to another folder"
                    ) from None

    def scrap(self, beside: Path) -> Path:
        """A fresh name on the same file system as `beside`, for what is not yet, or no longer, in place."""
        return beside.parent / f"{SCRAP_PREFIX}{beside.name}-{os.getpid()}-{time.monotonic_ns()}"

    def put(self, finished: Path, place: Path) -> None:
        """Move a finished folder into `place`; what was there, whole or broken, is deleted afterwards."""
        if os.path.lexists(place):
            os.replace(place, self.scrap(place))
        os.replace(finished, place)
        self.sweep()

    def discard(self, place: Path) -> None:
        """Delete a folder; renamed first, so that an interruption leaves no half of it under its real name."""
        if os.path.lexists(place):
            os.replace(place, self.scrap(place))
        self.sweep()

    def sweep(self) -> None:
        """Delete the scraps of this and of killed processes. Only a writer may call it."""
        for folder in (self.layers, self.engines):
            for scrap in folder.glob(f"{SCRAP_PREFIX}*"):
                if scrap.is_symlink() or not scrap.is_dir():  # rmtree takes folders alone
                    scrap.unlink(missing_ok=True)
                else:
                    shutil.rmtree(scrap, ignore_errors=True)

    def need(self, size_bytes: int, what: str) -> None:
        """Raise `EngineError` unless `size_bytes` are free."""
        free = shutil.disk_usage(self.root).free
        if free < size_bytes:
            raise disk_full(self.root, f"{what} needs {size_bytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")


def disk_full(root: Path, detail: str) -> EngineError:
    return EngineError(
        f"the disk of {root} is full: {detail}; nothing half-installed was left. Free some space, or set "
        "SPECORACLE_HOME to a folder on a larger disk, and run the command again"
    )
