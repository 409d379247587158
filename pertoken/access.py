"""Credentials that a server asks for before it shows its page: token or password, client certificate, authority.

Only the names of files and environment variables are kept: a secret is read when it is sent, so that it can change
under a running agent and appears in no setting, message, row or traceback.
"""

import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from pertoken.errors import BadInput

TOKEN_LIMIT = 65_536
MAX_SECRET_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for one base URL and everything below it."""

    url: str
    """As in `agent.engines`, or as discovery names the server."""
    token_file: str | None = None
    token_env: str | None = None
    """Environment variable of the agent that holds the token."""
    ca_file: str | None = None
    """Certificates of the authorities to believe instead of the system's, PEM."""
    cert_file: str | None = None
    """Certificate to show, PEM; its key too, if `key_file` does not name it."""
    key_file: str | None = None
    user: str | None = None
    """User with the token as password (HTTP Basic), as BMCs want it; without one it is a bearer token."""
    server_name: str | None = None
    """Name its certificate is made out to, where that is not the URL's host."""

    def token(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return the bearer token as it is now; None if none is asked for.

        Raises ValueError that names the expected place, never the value.
        """
        if self.token_file is not None:
            try:
                with Path(self.token_file).open("rb") as file:
                    text = file.read(TOKEN_LIMIT).decode("ascii", errors="replace").strip()
            except OSError as error:
                raise ValueError(f"its token cannot be read from {self.token_file}: {error.strerror}") from None
        elif self.token_env is not None:
            text = environment.get(self.token_env, "").strip()
        else:
            return None
        if not text or not all("!" <= character <= "~" for character in text):
            raise ValueError(f"{self.token_file or self.token_env} holds no token: one word of ASCII")
        return text


def read_secret(
    file: str | None, variable: str | None, what: str, environment: Mapping[str, str] = os.environ
) -> bytes | None:
    """Return a secret: the first line of a file, or an environment variable; None if neither is named.

    Raises BadInput naming the setting `what` and the file or variable, never the secret.
    """
    if file is not None:
        try:
            with Path(file).open("rb") as opened:
                text = opened.read(MAX_SECRET_BYTES).partition(b"\n")[0].strip()
        except OSError as error:
            raise BadInput(f"{what}: {file}: cannot be read: {(error.strerror or '').lower()}") from None
    elif variable is not None:
        text = environment.get(variable, "").strip().encode()
    else:
        return None
    if not text:
        raise BadInput(f"{what}: {file or variable} is empty")
    return text


def authorization(access: Access) -> Mapping[str, str]:
    """Return the header that shows the token; none where none is asked for. Raises ValueError as `Access.token`."""
    token = access.token()
    if token is None:
        return {}
    if access.user is None:
        return {"Authorization": f"Bearer {token}"}
    return {"Authorization": f"Basic {b64encode(f'{access.user}:{token}'.encode()).decode()}"}


def access_of(url: str, accesses: Iterable[Access]) -> Access:
    """Return the access of the longest base URL at or above `url`, the first of equal ones; else one without
    credentials."""
    covering = (access for access in accesses if url == access.url or url.startswith(f"{access.url}/"))
    return max(covering, key=lambda access: len(access.url), default=Access(url))


def read_access(rows: object) -> tuple[Access, ...]:
    """Access from the rows of a setting, each a table of the fields above.

    Raises ValueError, in which no value is repeated.
    """
    names = [field.name for field in fields(Access)]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"must be a list of tables with {', '.join(names)}")
    accesses = []
    for row in rows:
        wrong = [name for name, value in row.items() if name not in names or not isinstance(value, str) or not value]
        if wrong:
            raise ValueError(f"{wrong[0]} is not text or not one of {', '.join(names)} (a secret belongs in a file)")
        if "url" not in row:
            raise ValueError("each table needs the url it is for")
        if "token_file" in row and "token_env" in row:
            raise ValueError("a token comes from token_file or from token_env, not from both")
        if "key_file" in row and "cert_file" not in row:
            raise ValueError("key_file belongs to a cert_file")
        if "user" in row and not {"token_file", "token_env"} & row.keys():
            raise ValueError("the password of a user comes from token_file or token_env")
        accesses.append(Access(**row))
    return tuple(accesses)
