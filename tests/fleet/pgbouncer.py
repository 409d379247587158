"""A real PgBouncer in transaction mode before the tests' server, where the Debian package is installed."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
_DEADLINE_S = 20.0


@contextmanager
def pgbouncer(folder: Path, sockets: Path, user: str, *, sessions: int = 1, more: str = "") -> Iterator[int]:
    """Port of a pooler that hands each transaction of `user` to the next free of its sessions; ended by its pid.

    It refuses to run as root, so there it runs as the server's own user, who may enter the folder of its socket.
    """
    ini = (
        f"[databases]\npostgres = host={sockets} user={user}\n"
        "[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {{port}}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"
        f"default_pool_size = {sessions}\nmax_client_conn = 100\nserver_round_robin = 1\n{more}"
    )
    with pgbouncer_of(folder, ini, sockets.owner()) as port:
        yield port


@contextmanager
def pgbouncer_of(folder: Path, ini: str, system_user: str) -> Iterator[int]:
    """Port of a pooler with these settings, in which `{port}` stands for it; ended by its pid.

    It refuses to run as root, so there it runs as `system_user`.
    """
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "pgbouncer.ini").write_text(ini.replace("{port}", str(listen)))
    command = [PROGRAM, str(folder / "pgbouncer.ini")]
    if Path("/proc/self").stat().st_uid == 0:
        command[1:1] = ["-u", system_user]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", listen), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
        yield listen
    finally:
        process.terminate()
        process.wait(_DEADLINE_S)
