"""Names that identify a site, replaced consistently: the same name is the same pseudonym everywhere."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://[^\s\"'<>,;)\]}]+")
_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{0,4}(?:::[0-9a-fA-F:]*)?(?![\w:])")
_PATH = re.compile(r"(?<![\w:/.])~?/(?:[\w.@+-]+/)*[\w.@+-]+")
_UUID = re.compile(r"\b(?:[A-Z]+-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_PATTERNS = (("url", _URL), ("mail", _MAIL), ("uuid", _UUID), ("address", _IPV6), ("address", _IPV4), ("path", _PATH))
"""In this order: a URL holds an address, and may hold a path."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PUBLIC_LABELS = ("reason", "le", "finished_reason")
"""Labels of a stored metric that name no one."""
MIN_PLAIN = 6
"""Names at least this long are replaced inside words, too; a shorter one could be a part of any word."""


class Pseudonyms:
    """Replaces names by `kind-1`, `kind-2`, in the order in which they are met."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._long: re.Pattern[str] | None = None
        self._short: re.Pattern[str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are replaced."""
        return tuple(self._names)

    def add(self, kind: str, name: str | None) -> None:
        """Replace a name from now on; one that is replaced already keeps its pseudonym."""
        if name and name not in self._names:
            self._counts[kind] += 1
            self._names[name] = f"{kind}-{self._counts[kind]}"
            self._long = self._short = None

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        self.add(kind, name)
        return self._names[name]

    def text(self, text: str) -> str:
        """Return a text without names: those that were added, and whatever looks like an address, a path or an id."""
        if text in self._names:
            return self._names[text]
        if text[:1] in ("{", "["):
            try:
                return json.dumps(self._json(json.loads(text)), separators=(",", ":"), ensure_ascii=False)
            except ValueError:
                pass  # it only begins like JSON
        return self._plain(text)

    def metric(self, text: str) -> str:
        """Return a stored metric whose labels name no tenant: `tokens{team="team-1"}`."""

        def label(match: re.Match[str]) -> str:
            name, value = match.groups()
            return match[0] if name in PUBLIC_LABELS or not value else f'{name}="{self.of(name, value)}"'

        return _LABEL.sub(label, text)

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._plain(key): self._json(item) for key, item in value.items()}
        return [self._json(item) for item in value] if isinstance(value, list) else value

    def _plain(self, text: str) -> str:
        if self._long is None or self._short is None:
            self._compile()
        assert self._long is not None and self._short is not None
        for pattern in (self._long, self._short):
            text = pattern.sub(lambda match: self._names[match[0]], text)
        for kind, pattern in _PATTERNS:
            text = pattern.sub(self._pseudonym_for(kind), text)
        return text

    def _pseudonym_for(self, kind: str) -> Callable[[re.Match[str]], str]:
        # A name found by its form is not added to the patterns: they would be compiled again for each.
        def replaced(match: re.Match[str]) -> str:
            if match[0] not in self._names:
                self._counts[kind] += 1
                self._names[match[0]] = f"{kind}-{self._counts[kind]}"
            return self._names[match[0]]

        return replaced

    def _compile(self) -> None:
        """Longest first: a name may hold another."""
        ordered = sorted(self._names, key=len, reverse=True)
        self._long = _any_of([name for name in ordered if len(name) >= MIN_PLAIN], "", "")
        self._short = _any_of([name for name in ordered if len(name) < MIN_PLAIN], r"(?<![\w.-])", r"(?![\w-])")


def _any_of(names: Iterable[str], before: str, after: str) -> re.Pattern[str]:
    joined = "|".join(map(re.escape, names))
    return re.compile(f"{before}(?:{joined}){after}" if joined else r"(?!)")
