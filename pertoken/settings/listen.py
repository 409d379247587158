"""Addresses to listen at."""

import ipaddress


def read_listen(value: object) -> tuple[str, int]:
    """Return (address, port) of `127.0.0.1:9877`, `[::1]:9877`, or of a port alone, which is of 127.0.0.1."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877")
    host, _, port = text.strip().rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        number = int(port)
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError("must be an address and a port, such as 127.0.0.1:9877") from None
    if not 0 <= number <= 65_535:
        raise ValueError("must have a port from 0 (any that is free) to 65535")
    return host, number


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches an address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
