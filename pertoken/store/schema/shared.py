"""Columns and names of constraints that the tables of every group share, and the builder of telemetry's tables."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

Value = int | str | None
Values = tuple[Value, ...]
"""Values of a row as they are stored, in the order of its columns."""
OTHER = 0
"""`epoch_id` of foreign work in `device_share`."""
_ESCAPES = {0x1E: "\x1e\x1e", 0x1F: "\x1e\x1d"}


@lru_cache(4096)
def stable_id(*parts: str | int) -> int:
    """Return a signed 64-bit id of a natural key: the same parts in the same order give the same id everywhere.

    Parts are joined by a separator that cannot occur in them unescaped, so ("ab", "c") differs from ("a", "bc").
    Never 0, which means *other* in shares.
    """
    key = "\x1f".join(str(part).translate(_ESCAPES) for part in parts)
    # A path of this host may hold bytes that are no text; they come as surrogates.
    digest = blake2b(key.encode(errors="surrogatepass"), digest_size=8, person=b"pertoken").digest()
    number = int.from_bytes(digest, signed=True)
    return number or 1


IMPORTED_MACHINE = "prometheus:"
"""What the machine id of a host begins with whose telemetry was imported; its name follows."""
DEMO_MACHINE = "demo:"
"""What the machine id of a generated host begins with (`pertoken demo`); its name follows."""
GATEWAY = "gateway"
"""`found_by` of an engine row that is a gateway: its counters are of tenants, and it serves no model."""
DRIVER = "driver_version"
"""Key among the knobs of an epoch under which the version of its devices' driver is stored."""
CONNECTOR = "kv_connector"
"""Key among the knobs of an epoch for the connector by which a server shares KV caches with other servers."""
