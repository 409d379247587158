"""Location of a database: a folder with two SQLite files, or a PostgreSQL server with two schemas."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pertoken.config import SERVICE_ADVICE, SERVICE_FOLDER, Settings
from pertoken.errors import BadInput, StoreError, StoreInaccessible, limit_reached
from pertoken.installed import install_command
from pertoken.settings.values import APP

if TYPE_CHECKING:
    import psycopg


CREDENTIAL = "pertoken.database-url"
ADVISOR_CREDENTIAL = "pertoken.advisor-url"
"""Name of the service manager's credential that may hold the whole URL."""
CONNECT_S = 10


def server_url(text: str, where: str) -> URL:
    """Return a checked PostgreSQL URL, for psycopg. Raises BadInput naming `where` it was set; never repeats it."""
    authority = text.partition("://")[2].partition("/")[0].partition("?")[0]
    if authority.count("@") > 1:
        raise BadInput(f"{where}: a @ in a user name or password is written %40")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadInput(f"{where}: not a database URL: write it like postgresql://user@host/database") from None
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise BadInput(f"{where}: {url.get_backend_name()} is not supported: name a folder or a postgresql:// URL")
    password = url.query.get("password")
    if isinstance(password, str):
        url = url.difference_update_query(["password"]).set(password=password)
    return url.set(drivername="postgresql+psycopg")


_SECRET = ("sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Parameters of libpq that are secrets, beside the password."""


def shown(url: URL) -> str:
    """Return a URL as people write it, its password and other secrets left out."""
    hidden = {name: "***" for name in _SECRET if name in url.query}
    text = url.set(drivername="postgresql").update_query_dict(hidden).render_as_string(hide_password=True)
    return text.replace("=%2A%2A%2A", "=***")


def not_allowed(url: URL | None) -> str:
    """Return what to add to a server's refusal: which login may do what."""
    who = f"{url.username} " if url and url.username else ""
    return (
        f"{who}may not do this: screens need a member of pertoken_reader, advice and prices one of pertoken_advisor, "
        "`pertoken db` the owner of the database"
    )


def without_secret(message: str, url: URL | None) -> str:
    """Return a driver's message with the URL's password and other secrets, should it hold one, left out."""
    if url is None:
        return message
    for secret in (url.password, *(url.query.get(name) for name in _SECRET)):
        if secret:
            message = message.replace(str(secret), "***")
    return message


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A server to connect to, and what it asks for."""

    url: URL = field(repr=False)
    password_file: str | None = None
    tls: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __str__(self) -> str:
        """Return how it is shown: never with a password."""
        return shown(self.url)

    def to_json(self) -> dict[str, str | None]:
        """For a pipe to a child of ours, password and all: never for a log, an argument or the environment."""
        rest = {name: getattr(self, name) for name in self.__slots__ if name != "url"}
        return {"url": self.url.render_as_string(hide_password=False), **rest}

    @classmethod
    def from_json(cls, values: Mapping[str, str | None]) -> DatabaseServer:
        """Return the same again. Raises BadInput for a URL that is none."""
        others = {name: value for name, value in values.items() if name != "url"}
        return cls(server_url(values["url"] or "", "ship.url"), **others)

    def connect(self) -> psycopg.Connection:
        """Return a connection that works behind PgBouncer in transaction mode: nothing of it outlives a transaction.

        Raises StoreError, in one line, if there is no way in.
        """
        try:
            import psycopg
        except ModuleNotFoundError:
            raise StoreError(f"PostgreSQL needs psycopg: {install_command('postgres')}") from None
        try:
            return psycopg.connect(
                **self._parameters(),
                connect_timeout=CONNECT_S,
                prepare_threshold=None,
                application_name="pertoken",
                keepalives_idle=30,
            )
        except psycopg.Error as error:
            raise StoreError(f"{self}: {self.message_of(error)}") from None

    def message_of(self, error: BaseException) -> str:
        """Return the first line of a driver's error, without a secret."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = without_secret(lines[0], self.url)
        password = self._password()
        return text.replace(password, "***") if password else text

    def _parameters(self) -> dict[str, Any]:
        chosen = {"sslmode": self.tls, "sslrootcert": self.ca_file, "sslcert": self.cert_file, "sslkey": self.key_file}
        url = self.url.update_query_dict({name: value for name, value in chosen.items() if value})
        parameters = {
            "host": url.host or None,
            "port": url.port,
            "user": url.username,
            "dbname": url.database,
            "password": self._password(required=True) or (str(url.password) if url.password else None),
            **{name: value for name, value in url.query.items() if isinstance(value, str)},
            **tls_defaults(url),
        }
        return {name: value for name, value in parameters.items() if value is not None}

    def _password(self, *, required: bool = False) -> str | None:
        if self.password_file is None:
            return None
        try:
            return Path(self.password_file).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            if not required:
                return None
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise StoreError(f"the password cannot be read from {self.password_file}: {reason}") from None


def tls_defaults(url: URL, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the TLS parameters of libpq that neither a URL nor the environment sets, for a connection by that URL.

    A server elsewhere must prove itself by its certificate and name before it gets a password, for libpq's own default
    (`prefer`) gives it to whoever answers. A socket or a loopback address is taken as it is.
    """
    defaults = {}
    mode = url.query.get("sslmode") or environment.get("PGSSLMODE")
    if not mode:
        mode = defaults["sslmode"] = "prefer" if _is_local(url, environment) else "verify-full"
    if mode == "verify-full" and not (url.query.get("sslrootcert") or environment.get("PGSSLROOTCERT")):
        defaults["sslrootcert"] = "system"
    return defaults


def _is_local(url: URL, environment: Mapping[str, str]) -> bool:
    """Return whether every host and address that libpq may connect to is a socket or a loopback address."""
    if url.query.get("service") or environment.get("PGSERVICE"):
        return False  # a file of libpq's names the host
    named: list[str] = [url.host] if url.host else []
    for name, variable in (("host", "PGHOST"), ("hostaddr", "PGHOSTADDR")):
        value = url.query.get(name) or ("" if name == "host" and url.host else environment.get(variable, ""))
        named += [part for item in ((value,) if isinstance(value, str) else value) for part in item.split(",") if part]
    return all(_is_near(item) for item in named)


def _is_near(host: str) -> bool:
    if host.startswith(("/", "@")) or host == "localhost":
        return True
    for address in (host, host.rpartition(":")[0]):  # of several hosts each has its port
        try:
            return ip_address(address).is_loopback
        except ValueError:
            continue
    return False


def tls_hint(url: URL | None, reason: str) -> str:
    """Return what to add to a refusal that is about TLS: the next step."""
    if url is None or not any(word in reason for word in ("SSL", "certificate")):
        return ""
    return (
        "; name its authority with ?sslrootcert=FILE in the URL, or trust the network to it with ?sslmode=disable "
        "(sslmode=require: encrypted, not proven)"
    )


def shipping_server(settings: Settings, environment: Mapping[str, str] = os.environ) -> DatabaseServer | None:
    """Return where this host ships to: the setting, else the service manager's credential; None: nowhere.

    Raises BadInput for a URL that is none or a credential that cannot be read.
    """
    text, where = settings.ship_url, "ship.url"
    if text is None:
        text, where = credential(CREDENTIAL, environment), f"credential {CREDENTIAL}"
    if not text:
        return None
    return DatabaseServer(
        url=server_url(text, where),
        password_file=settings.ship_password_file,
        tls=settings.ship_tls,
        ca_file=settings.ship_ca_file,
        cert_file=settings.ship_cert_file,
        key_file=settings.ship_key_file,
    )


def credential(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a credential that the service manager hands over; None if there is none. Raises BadInput."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder or not (Path(folder) / name).is_file():
        return None
    try:
        return (Path(folder) / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"credential {name}: cannot be read") from None


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
