"""Domains of stored values: values that a column about a host, device, engine or deployment may hold.

A fleet's server checks them where hosts ship (`store.central.functions`); readers check them on each row
(`store.query.read`), since a local database may hold anything. A value outside its domain is replaced as the domain
states, and its row is kept. `DOMAINS`, at the end, is the table of all domains.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

from pertoken.printable import literal, short
from pertoken.state.deployment import MAX_NAME, PURCHASES, InvalidEdit, Knob, Model, knobs
from pertoken.state.fleet import LINKS

MAX_NUMBER = 2**53
"""Largest whole number, in a row or in JSON: JSON readers keep it exact, and a thousand of them fit into 64 bits."""
MAX_TS = 2**40
"""Largest time, epoch seconds: later ones have no calendar date."""
MAX_DURATION_MS = 40 * 86_400_000
"""Maximum time that one row covers: 40 days without the agent. A thousand of them in ns fit into 64 bits."""
MAX_TEXT = 1_000
"""Maximum characters of a text: several times the longest path or URL an engine starts with."""
MAX_JSON = 100_000
"""Maximum characters of a JSON value: links of 1,000 devices, or knobs with 256 adapters, are shorter."""
MAX_MEMBERS = 256
"""Maximum members of a JSON object: five times the number of knobs."""


@dataclass(frozen=True, slots=True)
class CheckedValue:
    """Value for readers, and the reason if it replaces the stored one."""

    value: object
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers from `low` to `high`. Another value becomes None, or the nearest number if required."""

    low: int = 0
    high: int = MAX_NUMBER
    required: bool = False

    def check(self, value: object) -> CheckedValue:
        """Return the number, or its replacement with the reason."""
        if type(value) is int and self.low <= value <= self.high:
            return CheckedValue(value)
        reason = f"must be a whole number from {self.low} to {self.high}"
        if not self.required:
            return CheckedValue(None, reason)
        return CheckedValue(min(max(value, self.low), self.high) if type(value) is int else self.low, reason)


@dataclass(frozen=True, slots=True)
class Text:
    """One printable line of at most `max_chars`; longer text is cut, and control characters are escaped."""

    max_chars: int = MAX_NAME
    required: bool = False
    words: tuple[str, ...] = ()
    """Allowed values; empty: any text."""

    def check(self, value: object) -> CheckedValue:
        """Return the text, or its replacement with the reason."""
        if not isinstance(value, str):
            return CheckedValue("?" if self.required else None, "must be text")
        if self.words and value not in self.words:
            return CheckedValue(None, f"must be one of {', '.join(self.words)}")
        if not value.strip():
            return CheckedValue("?" if self.required else None, "is empty" if self.required else None)
        if len(value) > self.max_chars:
            cut = _printable_line(value[: self.max_chars], self.max_chars)
            return CheckedValue(cut, f"is longer than {self.max_chars:,} characters")
        if value.isprintable():
            return CheckedValue(value)
        return CheckedValue(_printable_line(value, self.max_chars), "has characters that cannot be printed")


def _printable_line(text: str, max_chars: int) -> str:
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in literal(text))
    return escaped if len(escaped) <= max_chars else f"{escaped[: max_chars - 1]}…"


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object without the members for which `member` returns a reason."""

    member: Callable[[str, object], str | None]
    required: bool = False

    def check(self, value: object) -> CheckedValue:
        """Return the text without invalid members, or `empty` if it is not a JSON object."""
        return _checked_object(self, value) if isinstance(value, str) else CheckedValue(self.empty, "must be text")

    @property
    def empty(self) -> str | None:
        """Replacement of a value that is not a JSON object."""
        return "{}" if self.required else None


@lru_cache(maxsize=16_384)  # a fleet has a few hundred different ones, which each refresh reads again
def _checked_object(domain: JsonObject, text: str) -> CheckedValue:
    if len(text) > MAX_JSON:
        return CheckedValue(domain.empty, f"is longer than {MAX_JSON:,} characters")
    try:
        members = json.loads(text, parse_int=_json_integer)
    except (ValueError, RecursionError):
        return CheckedValue(domain.empty, "is no JSON that can be read")
    if not isinstance(members, dict) or len(members) > MAX_MEMBERS:
        return CheckedValue(domain.empty, f"must be a JSON object of at most {MAX_MEMBERS} members")
    reasons = {name: _json_fault(member) or domain.member(name, member) for name, member in members.items()}
    if not any(reasons.values()):
        return CheckedValue(text)
    valid_members = {name: member for name, member in members.items() if reasons[name] is None}
    first_reason = next(f"{short(literal(name))} {reason}" for name, reason in reasons.items() if reason)
    return CheckedValue(json.dumps(valid_members), first_reason)


def _json_fault(member: object) -> str | None:
    """Return why a JSON reader cannot take a member; None if it can."""
    try:
        json.dumps(member, allow_nan=False)
    except (ValueError, RecursionError):
        return "has a number that is too large"
    return None


def _json_integer(digits: str) -> int | float:
    """Return a JSON integer; infinity, which no domain allows, for more than 20 digits (64 bits have 20)."""
    return int(digits) if len(digits) <= 20 else float("inf")


def _is_scalar(value: object) -> bool:
    if isinstance(value, str):
        return Text(MAX_TEXT).check(value).reason is None
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int | float) and -MAX_NUMBER <= value <= MAX_NUMBER


def _knob_fault(name: str, value: object) -> str | None:
    """Return why a knob of an epoch cannot be used.

    A word unknown to this version comes from a newer engine: screens show it, and no rule reads it.
    """
    if Text().check(name).reason or not name:
        return "is no name of a knob"
    knob: Knob | None = knobs().get(name)
    if value is None or knob is None or knob.type in ("word", "text", "model"):
        return None if _is_scalar(value) else "must be a short text or a number"
    try:
        knob.check(value)
    except InvalidEdit:
        return f"must be {knob.domain}"
    return None


_MODEL_FIELDS = {model_field.name for model_field in fields(Model)}
_MAY_BE_ZERO = (
    *("n_experts", "n_experts_active", "sliding_window", "n_windowed_layers", "windowed_kv_values"),
    *("n_attention_layers", "n_linear_layers", "state_bytes"),
)


def _fact_fault(name: str, value: object) -> str | None:
    """Return why a fact of a model cannot be used; unknown facts are not read."""
    if name not in _MODEL_FIELDS or value is None:
        return None
    if name == "name":
        return Text(required=True).check(value).reason
    return Whole(0 if name in _MAY_BE_ZERO else 1).check(value).reason


def _links_fault(name: str, value: object) -> str | None:
    if name not in LINKS:
        return None
    is_list = isinstance(value, list) and all(isinstance(uuid, str) and len(uuid) <= MAX_NAME for uuid in value)
    return None if is_list else "must be a list of device UUIDs"


_NAME, _REQUIRED_NAME = Text(), Text(required=True)
_TEXT, _REQUIRED_TEXT = Text(MAX_TEXT), Text(MAX_TEXT, required=True)
_TS = Whole(high=MAX_TS, required=True)

Domain = Whole | Text | JsonObject
DOMAINS: Mapping[str, Mapping[str, Domain]] = {
    "host": {
        "name": _REQUIRED_NAME,
        **dict.fromkeys(("machine_id", "boot_id", "os", "cpu_name", "dmi_vendor", "dmi_product"), _NAME),
        **dict.fromkeys(("cloud", "instance_type", "region", "plug_source"), _NAME),
        "purchase": Text(words=PURCHASES),
        "agent_version": _REQUIRED_NAME,
        "interval_s": Whole(1, 86_400, required=True),
        "boot_ms": Whole(),
        "cpu_count": Whole(1, 100_000),
        "memory_bytes": Whole(),
        "first_ts": _TS,
        "last_ts": _TS,
    },
    "device": {
        **dict.fromkeys(("kind", "uuid", "name"), _REQUIRED_NAME),
        **dict.fromkeys(("vendor", "driver_version", "pci_bus_id", "power_source", "energy_source"), _NAME),
        "slot": Whole(high=100_000),
        "memory_bytes": Whole(),
        "power_limit_mw": Whole(high=10_000_000),
        "part_1e6": Whole(high=1_000_000),
        "first_ts": _TS,
        "last_ts": _TS,
        "links": JsonObject(_links_fault),
    },
    "engine": {
        "kind": _REQUIRED_NAME,
        "base_url": _REQUIRED_TEXT,
        "port": Whole(high=65_535),
        "pid": Whole(),
        "process_start_ms": Whole(),
        "version": _NAME,
        "found_by": _REQUIRED_NAME,
        "first_ts": _TS,
        "last_ts": _TS,
    },
    "deployment": {
        "served_model": _REQUIRED_NAME,
        "model_path": _TEXT,
        "model_facts": JsonObject(_fact_fault),
        "first_ts": _TS,
        "last_ts": _TS,
    },
    "epoch": {
        "start_ts": _TS,
        "end_ts": Whole(high=MAX_TS),
        "engine_version": _NAME,
        "knobs": JsonObject(_knob_fault, required=True),
    },
    "event": {"kind": _REQUIRED_NAME, "message": _REQUIRED_TEXT, "count": Whole(1, required=True)},
    "capability": {
        "status": _REQUIRED_NAME,
        "reason": Text(500),
        "remedy": Text(500),
        "since_ts": _TS,
    },
}
"""Domain of each column that a person or a rule reads, by table; ids and keys may be any 64-bit number."""
