"""Telling systemd how the agent is: ready, alive, stopping. Source: sd_notify(3)."""

import os
import socket
from collections.abc import Mapping


def notify(*states: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send states such as `READY=1`, `WATCHDOG=1`, `STATUS=...` to the service manager in one datagram.

    False if no manager asked for them (no NOTIFY_SOCKET). Raises OSError if its socket does not take them.
    """
    path = environment.get("NOTIFY_SOCKET")
    if not path:
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.settimeout(1.0)
        to.sendto("\n".join(states).encode(), address)
    return True
