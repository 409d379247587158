"""Location of a database: a folder with two SQLite files, or a PostgreSQL server with two schemas."""

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from pertoken.config import SERVICE_ADVICE, SERVICE_FOLDER
from pertoken.errors import BadInput, StoreError, StoreInaccessible, limit_reached
from pertoken.settings.keys import APP
from pertoken.store.connect.server import server_url, shown


def trouble(file: Path, *, writing: bool) -> str | None:
    """Return what is in the way of a file and what to do about it; None if nothing is found."""
    folder = file.parent
    for ancestor in (*reversed(folder.absolute().parents), folder):
        if ancestor.is_dir() and not os.access(ancestor, os.X_OK):
            return (
                f"{ancestor} may not be entered by this user (uid {os.geteuid()}): run as its owner or join its group"
            )
    if file.is_dir():
        return f"{file} is a folder; move it away"
    if not folder.is_dir():
        return f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
    if file.exists() and not os.access(file, os.R_OK):
        return f"{file} may not be read by this user (uid {os.geteuid()}): run as its owner or join its group"
    disk = os.statvfs(folder)
    read_only = bool(disk.f_flag & os.ST_RDONLY)
    if read_only and writing:
        return f"{folder} is on a disk that is mounted read-only: mount it for writing, or choose another --db"
    if not read_only and disk.f_files and not disk.f_favail:
        return f"the disk of {folder} has no inodes left, so that no file can be made: delete files there"
    if not read_only and not disk.f_bavail:
        return f"the disk of {folder} is full: make room there"
    # Readers make the index of the log where there is none.
    if not os.access(folder, os.W_OK) or (writing and file.exists() and not os.access(file, os.W_OK)):
        return f"{folder} may not be written by this user (uid {os.geteuid()}): run as its owner or join its group"
    return None


GROUPS = ("telemetry", "advice")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.]*:")


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A database by its folder or its URL; `advice_folder` only differs where advice lives apart."""

    folder: Path | None = None
    advice_folder: Path | None = None
    url: URL | None = None

    def __str__(self) -> str:
        """Return how it is shown: never with a password."""
        return shown(self.url) if self.url else str(self.folder)

    def file(self, group: str) -> Path:
        """Return the SQLite file of one group. Raises ValueError for a PostgreSQL place."""
        if self.folder is None:
            raise ValueError(f"{self} has no files")
        folder = self.advice_folder if group == "advice" and self.advice_folder else self.folder
        return folder / f"{group}.db"

    def exists(self, group: str) -> bool:
        """Return whether there is something to open (a server is taken to exist until it is asked).

        Raises StoreInaccessible where this user may not look.
        """
        if self.url is not None:
            return True
        file = self.file(group)
        try:
            return file.is_file()
        except OSError as error:
            raise _inaccessible(file, error) from None


def _inaccessible(file: Path, error: OSError) -> StoreInaccessible:
    why = trouble(file, writing=False) or "choose another --db"
    return StoreInaccessible(f"{file.parent}: {(error.strerror or str(error)).lower()}; {why}")


def locate(db: str | None = None, advice: str | None = None) -> StoreLocation:
    """Return the place `--db` names, else the service's folder if it can be read, else this person's data folder.

    Raises BadInput for a URL that is neither a folder nor PostgreSQL.
    """
    advice_folder = _expanded(advice, "advice") if advice else None
    if db is None:
        folder = SERVICE_FOLDER if os.access(SERVICE_FOLDER / "telemetry.db", os.R_OK) else person_folder()
        return StoreLocation(folder=folder, advice_folder=advice_folder or _service_advice(folder))
    if not _SCHEME.match(db):
        folder = _expanded(db, "--db")
        # By `os.path`, which reports a path that may not be looked at as absent: whoever opens it explains.
        if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112
            raise BadInput(f"--db {db}: is a file; name the folder that holds (or is to hold) telemetry.db")
        return StoreLocation(folder=folder, advice_folder=advice_folder or _service_advice(folder))
    return StoreLocation(url=server_url(db, "--db"))


def _service_advice(folder: Path) -> Path | None:
    """Return the folder of the advisor service, where it is installed and `folder` is that of the agent's service."""
    # By `os.path`, which reports a path that may not be looked at as absent.
    return SERVICE_ADVICE if folder == SERVICE_FOLDER and os.path.isdir(SERVICE_ADVICE) else None  # noqa: PTH112


def _expanded(text: str, where: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BadInput(f"{where} {text}: there is no such user; write the folder out") from None


def person_folder() -> Path:
    """This person's data folder (a service's, where systemd names one)."""
    import platformdirs

    service = os.environ.get("STATE_DIRECTORY")
    return Path(service) if service else Path(platformdirs.user_data_dir(APP))


class ProgramLock:
    """Held by the one process of a program (`agent`, `advisor`) on a folder; freed by the kernel however it ends."""

    def __init__(self, folder: Path, program: str) -> None:
        self._program, self._file = program, folder / f"{program}.lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock and note this process in it. Raises StoreError naming the process that has it."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if limit := limit_reached(error):
                raise limit from None
            why = trouble(self._file, writing=True) or "choose another --db"
            raise StoreInaccessible(f"{self._file.parent}: cannot be written: {error.strerror}; {why}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreError(
                f"an {self._program} (pid {self.owner() or 'unknown'}) already writes {self._file.parent}; "
                "`pertoken top` shows what it sees"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd

    def release(self) -> None:
        """Let it go; harmless when it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def owner(self) -> int | None:
        """Return the pid of the process that has it now, None if none does."""
        try:
            with self._file.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    text = file.read().strip()
                    return int(text) if text.isdigit() else None
        except OSError:
            return None
        return None


class AgentLock(ProgramLock):
    """Held by the one agent that writes a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "agent")
