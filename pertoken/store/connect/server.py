"""A PostgreSQL server by its URL: checked, shown without its password, entered with what files hold.

A password comes from a file, from the service manager's credential, from libpq's own places (PGPASSFILE) or, if it
must, from the URL. It is read when a connection is made and repeated in no message.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pertoken.config import Settings
from pertoken.errors import BadInput, StoreError
from pertoken.installed import install_command

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
class Server:
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

    def to_json(self) -> dict[str, Any]:
        """For a pipe to a child of ours, password and all: never for a log, an argument or the environment."""
        rest = {name: getattr(self, name) for name in self.__slots__ if name != "url"}
        return {"url": self.url.render_as_string(hide_password=False), **rest}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Server":
        """Return the same again. Raises BadInput for a URL that is none."""
        return cls(**{**values, "url": server_url(values["url"], "ship.url")})

    def connect(self) -> "psycopg.Connection[Any]":
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
        parameters: dict[str, Any] = {
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


def shipping_server(settings: Settings, environment: Mapping[str, str] = os.environ) -> Server | None:
    """Return where this host ships to: the setting, else the service manager's credential; None: nowhere.

    Raises BadInput for a URL that is none or a credential that cannot be read.
    """
    text, where = settings.ship_url, "ship.url"
    if text is None:
        text, where = credential(CREDENTIAL, environment), f"credential {CREDENTIAL}"
    if not text:
        return None
    return Server(
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
