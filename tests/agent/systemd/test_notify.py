import socket
from pathlib import Path

import pytest

from pertoken.agent.systemd import notify


def test_states_reach_the_manager_in_one_datagram(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(5)
        assert notify("READY=1", "STATUS=recording", environment={"NOTIFY_SOCKET": path})
        assert manager.recv(1000) == b"READY=1\nSTATUS=recording"


def test_an_abstract_socket_is_found_by_its_at_sign() -> None:
    name = f"pertoken-{Path(__file__).stat().st_ino}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(5)
        assert notify("WATCHDOG=1", environment={"NOTIFY_SOCKET": f"@{name}"})
        assert manager.recv(1000) == b"WATCHDOG=1"


def test_without_a_manager_nothing_is_sent_and_a_vanished_one_is_an_error(tmp_path: Path) -> None:
    assert not notify("READY=1", environment={})
    with pytest.raises(OSError, match="No such file"):
        notify("READY=1", environment={"NOTIFY_SOCKET": str(tmp_path / "gone")})
