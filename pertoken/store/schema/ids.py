"""Deterministic 64-bit ids, so that an agent that is offline makes the same ids as the centre."""

from functools import lru_cache
from hashlib import blake2b

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
