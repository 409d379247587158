"""Pseudonyms of names and ids: stable under one key, and not to be found by guessing names without it."""

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b

from pertoken.store.schema.ids import stable_id

SMALLEST_ID = 2**31
"""Numbers below are counts or positions: a deterministic id has 64 bits."""
SMALLEST_UNKNOWN_ID = 2**60
"""Numbers in JSON from here on are ids of something that is not stored: no amount or size is that large."""
_DIGITS = 12
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|\[?::1\]?|0\.0\.0\.0|\[?::\]?", re.IGNORECASE)
_PORT = re.compile(r"(.*?)((?::\d{1,5})?)")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_SCHEMES = frozenset({"http", "https", "rendezvous"})
_PAGES = frozenset({"", "metrics", "v1", "health", "models", "chat", "completions"})
_VERSION = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){0,3}(?:[-.]?(?:a|b|rc|alpha|beta|post|dev)\.?\d{1,9})*")
Published = Callable[[str], str | None]
"""The published form of a name or path: itself where it is public, the model that it ends in, None for any other."""


class Pseudonyms:
    """Replaces names by `kind-` and a keyed hash of the name."""

    def __init__(self, key: bytes, published: Published) -> None:
        self._key = blake2b(key).digest()
        self._published = published
        self._kinds: dict[str, str] = {}
        self._ids: dict[int, int] = {}

    @property
    def names(self) -> Iterable[str]:
        """All names that were learned."""
        return self._kinds.keys()

    def learn(self, kind: str, name: str) -> None:
        """Replace a name in every text from now on; the first kind of a name counts."""
        if name and self._published(name) != name:
            self._kinds.setdefault(name, kind)

    def learned(self, text: str) -> str | None:
        """Return the pseudonym of a learned name; None for any other text."""
        return self.name(text) if text in self._kinds else None

    def name(self, text: str, kind: str = "name") -> str:
        """Return the pseudonym of a name. The published name of a model stays, also as the end of a path."""
        published = self._published(text)
        if published == text:
            return text
        digest = blake2b(text.rstrip("/").encode(errors="surrogatepass"), key=self._key, digest_size=_DIGITS // 2)
        pseudonym = f"{self._kinds.get(text, kind)}-{digest.hexdigest()}"
        return pseudonym if published is None else f"{pseudonym}/{published.rpartition('/')[2]}"

    def learn_id(self, number: int) -> None:
        """Recognize an id in numbers and texts that may hold others."""
        if abs(number) >= SMALLEST_ID:
            self.id(number)

    def learn_device(self, device_id: int, uuid: str) -> None:
        """Make the id of a device from its pseudonym, as links to devices name their UUIDs alone."""
        self._ids[device_id] = stable_id("device", self.name(uuid, "device"))

    def id(self, number: int) -> int:
        """Return another id instead of a 64-bit id, and small numbers as they are."""
        if abs(number) < SMALLEST_ID:
            return number
        if number not in self._ids:
            digest = blake2b(b"id %d" % number, key=self._key, digest_size=8).digest()
            self._ids[number] = int.from_bytes(digest) >> 1 | SMALLEST_ID
        return self._ids[number]

    def number(self, number: int) -> int:
        """Return a number that may be an id: ids are replaced, any other number stays."""
        return self.id(number) if number in self._ids or abs(number) >= SMALLEST_UNKNOWN_ID else number

    def url(self, text: str) -> str | None:
        """Return a URL with its scheme, port, loopback host and usual pages, and no other name; None for no URL."""
        match = _URL.fullmatch(text)
        if match is None:
            return None
        scheme, authority, path, rest = match.groups()
        user, _, address = authority.rpartition("@")
        parts = [part if part in _PAGES else self.name(part) for part in path.split("/")]
        public = f"{scheme if scheme in _SCHEMES else self.name(scheme)}://{self.address(address)}{'/'.join(parts)}"
        private = "".join(filter(None, (user, rest)))
        return f"{public}?{self.name(private)}" if private else public

    def address(self, text: str) -> str:
        """Return a host with its port, where the name of the host is replaced unless it means the same host."""
        match = _PORT.fullmatch(text)
        host, port = match.groups() if match else (text, "")
        return text if not host or is_loopback(host) else self.name(host.casefold(), "address") + port

    def version(self, text: str) -> str:
        """Return a version without the part that a site added to the published release."""
        match = _VERSION.match(text)
        if match is None:
            return self.name(text, "version")
        local = text[match.end() :]
        if not local:
            return text
        return f"{match[0]}+{self.name(local.lstrip('+-._'), 'local')}" if local.lstrip("+-._") else match[0]


def is_loopback(text: str) -> bool:
    """Return whether an address with or without port is one that every host has."""
    return bool(_LOOPBACK.fullmatch(text) or _LOOPBACK.fullmatch(text.rpartition(":")[0]))
