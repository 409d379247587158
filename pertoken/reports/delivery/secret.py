"""Secrets from a file or the environment, read at use and never part of a message."""

import os
from collections.abc import Mapping
from pathlib import Path

from pertoken.errors import BadInput

MAX_BYTES = 4096


def read_secret(
    file: str | None, variable: str | None, what: str, environment: Mapping[str, str] = os.environ
) -> bytes | None:
    """Return the first line of a file, or an environment variable; None if neither is set.

    Raises BadInput naming the file or variable, never the secret.
    """
    if file is not None:
        try:
            with Path(file).open("rb") as opened:
                text = opened.read(MAX_BYTES).partition(b"\n")[0].strip()
        except OSError as error:
            raise BadInput(f"{what}: {file}: cannot be read: {(error.strerror or '').lower()}") from None
    elif variable is not None:
        text = environment.get(variable, "").strip().encode()
    else:
        return None
    if not text:
        raise BadInput(f"{what}: {file or variable} is empty")
    return text
