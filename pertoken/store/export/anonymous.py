"""Rows without names: an allow-list for each column, and pseudonyms for everything else."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import Column, Table, Text

from pertoken.catalog.market import load_market
from pertoken.settings.owners import LABEL
from pertoken.state.deployment import WORKLOAD, is_owner_knob, knobs
from pertoken.state.fleet import LINKS
from pertoken.store.schema.shared import DEMO_MACHINE, IMPORTED_MACHINE, stable_id

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


_PACKAGE = Path(__file__).parents[2]
_UNREAD = frozenset({"claims", "claims.py", "cli", "demo", "migrations", "testing", "tui"})
"""Packages whose text is not stored, or is made up."""
_LITERAL = re.compile(r'"""([\s\S]*?)"""|"((?:[^"\\\n]|\\.)*)"')
_FIELD = re.compile(r'^\s+([a-z]\w*)\s*:|"(\w+)"\s*[:\]]', re.MULTILINE)
_PLACEHOLDER = re.compile(r"\S*\{[^{}]*\}\S*")
_IDENTIFIER = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_PUBLIC_SUFFIX = re.compile(r"(?:-(?:instruct|chat|it|base|hf|fp8|awq|gptq|int4|int8|bf16))*")
_HARDWARE = frozenset(
    [
        "AMD",
        "Amazon",
        "Core",
        "Debian",
        "Dell",
        "EC2",
        "EPYC",
        "GIGABYTE",
        "HPE",
        "Intel",
        "LTS",
        "Lenovo",
        "NVIDIA",
        "Processor",
        "Supermicro",
        "Ubuntu",
        "Xeon",
    ]
)
"""Makers of computers, processors and systems, which name no site."""
TOKEN = re.compile(r"[\w.+@/~%#&*-]*[\w%]")
"""A word, a number, a path or a flag, without the punctuation behind it."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words that are published with the program."""

    constants: frozenset[str]
    """Whole texts: states, reasons, series."""
    terms: frozenset[str]
    """Names of the catalog: knobs, flags, devices, instance types, regions, providers."""
    words: frozenset[str]
    """Words of the program's own sentences."""
    fields: frozenset[str]
    """Names of fields, which are keys of stored JSON."""


@cache
def public_vocabulary() -> Vocabulary:
    """Return the words of the installed program."""
    literals: set[str] = set()
    fields = set(LINKS)
    for file in sorted(_PACKAGE.rglob("*.py")):
        if not _UNREAD.intersection(file.relative_to(_PACKAGE).parts):
            source = file.read_text(encoding="utf-8")
            literals.update(match[2] for match in _LITERAL.finditer(source) if match[2])
            if "plugins" in file.parts:  # a rule's docstring is the title of what it proposes
                literals.update(match[1] for match in _LITERAL.finditer(source) if match[1])
            fields.update(match[1] or match[2] for match in _FIELD.finditer(source))
    terms = {text for text in _catalog_texts() if not re.search(r"\s", text)}
    terms.update(word for name in _devices() for word in name.split())
    sentences = (_PLACEHOLDER.sub(" ", literal) for literal in literals if " " in literal)
    words = {word for sentence in sentences for word in TOKEN.findall(sentence) if "/" not in word[:1]}
    words.update(flag for text in _catalog_texts() for flag in TOKEN.findall(text) if flag.startswith("--"))
    constants = {literal for literal in literals if "{" not in literal}
    words.update(constant for constant in constants if _IDENTIFIER.fullmatch(constant))
    return Vocabulary(frozenset(constants), frozenset(terms), frozenset(words | _HARDWARE), frozenset(fields))


def published(text: str) -> str | None:
    """Return a public name of a model or device itself, of a path the model it ends in; None for any other text."""
    market = load_market()
    if (model := market.model(text)) is not None:
        owner, _, name = model.name.rpartition("/")
        stated_owner, _, stated_name = text.casefold().rpartition("/")
        suffix = stated_name.removeprefix(name.casefold())
        is_public = stated_owner in ("", owner.casefold()) and suffix != stated_name
        return text if is_public and _PUBLIC_SUFFIX.fullmatch(suffix) else model.name
    return text if market.accelerator(text) is not None else None


@cache
def _devices() -> frozenset[str]:
    accelerators = load_market().accelerators
    return frozenset(name for device in accelerators for name in (device.name, *device.reported_names))


def _catalog_texts() -> Iterator[str]:
    for file in sorted((_PACKAGE / "catalog").iterdir()):
        if file.suffix == ".csv":
            with file.open(encoding="utf-8", newline="") as opened:
                for row in csv.reader(opened):
                    yield from row
        elif file.suffix == ".toml" and file.name not in ("claims.toml", "invoices.toml"):
            yield from _texts(tomllib.loads(file.read_text(encoding="utf-8")))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


NAMES: Mapping[str, str] = {
    "host.name": "host",
    "host.machine_id": "machine",
    "host.boot_id": "boot",
    "device.uuid": "device",
    "device.pci_bus_id": "bus",
    "deployment.served_model": "model",
    "deployment.model_path": "model",
    "owned.host": "host",
    "recommendation.target_key": "service",
    **dict.fromkeys(
        ("transition.who", "probe.who", "price.set_by", "offer.set_by", "owned.set_by", "discount.set_by"), "user"
    ),
}
"""Columns that hold a name, with its kind; the name is replaced in all other texts, too."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "constant": (
        *("capability.metric", "capability.status", "device.kind", "device.vendor", "device.energy_source"),
        *("engine.kind", "engine.found_by", "event.kind", "host.dmi_product", "host.cloud"),
        *(
            "host.instance_type",
            "host.region",
            "host.purchase",
            "host.plug_source",
            "recommendation.rule_id",
            "recommendation.state",
        ),
        *("recommendation.target_kind", "refusal.code", "transition.from_state", "transition.to_state"),
        *("transition.code", "verdict.result", "receipt.kind", "trial.design", "trial.status"),
        *("alert.name", "alert.state", "alert_delivery.name", "alert_delivery.destination", "budget_alert.kind"),
        *("offer.provider", "offer.instance_type", "offer.accelerator", "offer.region", "offer.purchase"),
        *("offer.confidence", "discount.provider"),
    ),
    "version": (
        *("engine.version", "epoch.engine_version", "host.agent_version", "device.driver_version"),
        *("verdict.version_before", "verdict.version_after"),
    ),
    "metric": (
        *("histogram_sample.metric", "histogram_1m.metric", "histogram_1h.metric"),
        *("engine_counter_sample.metric", "engine_counter_1m.metric", "engine_counter_1h.metric"),
    ),
    "numbers": ("histogram_set.upper_bounds", "budget_alert.month", "offer.as_of"),
    "url": ("engine.base_url", "probe.endpoint"),
    "facts": ("device.links", "deployment.model_facts", "epoch.knobs", "owned.terms"),
    "document": (
        *("recommendation.body", "recommendation.estimate", "verdict.body", "receipt.body", "trial.body"),
        *("probe.body", "alert.body", "alert_delivery.body", "price.entered"),
    ),
    "sentence": (
        *("host.os", "host.cpu_name", "host.dmi_vendor", "device.name", "device.power_source"),
        *("capability.reason", "capability.remedy", "event.message", "price.selector", "price.note"),
        *("discount.note", "offer.source", "offer.note", "recommendation.title", "recommendation.reason"),
        *("recommendation.variant", "refusal.reason", "transition.why", "verdict.method", "receipt.hash"),
        *("alert.target", "alert_delivery.error"),
    ),
}
"""Columns of other text by what they may keep. The text of a column that is in neither table is replaced as a whole."""
FINGERPRINTS = frozenset({"host.boot_ms", "engine.pid", "engine.process_start_ms"})
"""Numbers by which a machine or process is known again, and which decide no figure: they are left out."""
MAX_CACHED = 200
"""Length of the longest text whose replacement is kept: metrics and reasons recur, documents do not."""
ACTORS = frozenset({"advisor", "agent", "billed", "detected", "detector", "ownership", "verification", "verifier"})
"""Programs that stand where users do."""
_PREFIXES = (IMPORTED_MACHINE, DEMO_MACHINE)
_CODED_KEYS = frozenset(
    [
        "kind",
        "field",
        "series",
        "unit",
        "provenance",
        "risk",
        "effort",
        "slo",
        "state",
        "status",
        "purchase",
        "figure",
        "code",
        "verdict",
        "design",
        "role",
    ]
)
"""Keys of JSON whose values are words of the program, even where a name is the same word."""
_NAMED_KNOBS = frozenset({"draft_model", "lora_adapters"})
_UNITS = "%|x|×|ms|s|min|h|d|w|k|K|M|B|G|T|KB|MB|GB|TB|KiB|MiB|GiB|TiB|W|kW|kWh|J|MHz|GHz|tok|th|st|nd|rd|Z"
_NUMBER = re.compile(
    rf"[+#-]?\d{{1,10}}(?:\.\d+)?(?:e[+-]?\d{{1,3}})?(?:{_UNITS})?"
    r"|\d{4}-\d\d(?:-\d\d(?:T\d\d)?)?|v?\d{1,6}\.\d{1,6}\.\d{1,6}|(?:a|b|rc|post|dev)\d{1,4}"
)
_BOUNDS = re.compile(r"(?:[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|[iI]nf)(?:,|$))+|\d{4}-\d\d(?:-\d\d)?")
_COUNT = re.compile(r"\d{0,4}")
"""Names that are small numbers are no names in a sentence, where each figure would become one."""
_METRIC = re.compile(r"(\w+)\{(.*)\}", re.DOTALL)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_PUBLIC_LABELS = frozenset({"reason", "le", "finished_reason"})
_QUOTES = (('"', '"'), ("`", "`"), ("“", "”"), ("\u2018", "\u2019"), ("«", "»"))
_QUOTED = "|".join(
    [rf"{start}(?:[^{end}\\]|\\.)*(?:{end}|$)" for start, end in _QUOTES] + [r"(?<!\w)'(?:[^'\\]|\\.)*?(?:'(?!\w)|$)"]
)
_SCAN = (
    r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s\"'<>,;)\]}`]+)"
    rf"|(?P<quoted>{_QUOTED})"
    r"|(?P<groups>(?<![\w:])\[?[0-9A-Fa-f]{0,8}(?::[0-9A-Fa-f.]{0,15}){2,}\]?)"
    rf"|(?P<token>{TOKEN.pattern})|(?P<mark>\W)"
)
_MARKS = frozenset(" \t\n!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~–—…·•→←↔×÷±≤≥≈°€£¥µ“”\u2018\u2019«»²³\u2212Δ∞✓✗")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d")
_FIRST_IN_SENTENCE = re.compile(r"(?:^|[.;:!?(]\s+|\n\s*)$")


class Anonymizer:
    """Judges every value of a row by its column."""

    def __init__(self, names: Pseudonyms, vocabulary: Vocabulary) -> None:
        self.names, self._vocabulary = names, vocabulary
        self._scan: re.Pattern[str] | None = None
        self._cache: dict[tuple[str, str], str] = {}
        self._text_judges: Mapping[str, Callable[[str], str]] = {
            "constant": self._constant,
            "version": self.names.version,
            "metric": self._metric,
            "numbers": lambda text: text if _BOUNDS.fullmatch(text) else self.names.name(text),
            "url": lambda text: self.names.url(text) or self.names.name(text, "address"),
            "facts": lambda text: self._document(text, self._value),
            "document": lambda text: self._document(text, self.sentence),
            "sentence": self.sentence,
        }
        self._judge_by_column = {column: judge for judge, columns in COLUMNS.items() for column in columns}

    def learn(self, column: str, value: str) -> None:
        """Learn a name from a value of a column of `NAMES` or of a metric with labels."""
        if column in NAMES:
            self._learn_name(NAMES[column], value)
        elif self._judge_by_column.get(column) == "metric" and (match := _METRIC.fullmatch(value)):
            for label, name in _LABEL.findall(match[2]):
                if label not in _PUBLIC_LABELS:
                    self._learn_name("tenant", name)

    def row(self, table: Table, row: tuple[object, ...]) -> tuple[object, ...]:
        """Return the values of a row without names, with other ids."""
        return tuple(
            self._column_value(column_name(column), is_id(column), value)
            for column, value in zip(table.columns, row, strict=True)
        )

    def sentence(self, text: str) -> str:
        """Return a sentence in which the program's own words and numbers stay."""
        if (pseudonym := self.names.learned(text)) is not None:
            return pseudonym
        if text in self._vocabulary.constants or self.names.name(text) == text:
            return text
        if self._scan is None:
            self._scan = _scanner(self.names.names)
        return self._scan.sub(self._part, text)

    def _learn_name(self, kind: str, value: str) -> None:
        if not isinstance(value, str) or value in ACTORS or _as_id(value) is not None or _COUNT.fullmatch(value):
            return
        self.names.learn(kind, next((value[len(p) :] for p in _PREFIXES if value.startswith(p)), value))

    def _column_value(self, column: str, identifies: bool, value: object) -> object:
        if column in FINGERPRINTS:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and identifies:
            return self.names.id(value)
        if not isinstance(value, str) or not value:
            return value
        if len(value) > MAX_CACHED:
            return self._text(column, value)
        key = column, value
        if key not in self._cache:
            self._cache[key] = self._text(column, value)
        return self._cache[key]

    def _text(self, column: str, text: str) -> str:
        if column in NAMES:
            return self._named(NAMES[column], text)
        judge = self._judge_by_column.get(column)
        return self.names.name(text, "text") if judge is None else self._text_judges[judge](text)

    def _named(self, kind: str, text: str) -> str:
        if kind == "user" and text in ACTORS:
            return text
        if (number := _as_id(text)) is not None:
            return str(self.names.id(number))
        prefix = next((prefix for prefix in _PREFIXES if text.startswith(prefix)), "")
        return prefix + self.names.name(text[len(prefix) :], kind)

    def _constant(self, text: str) -> str:
        is_public = text in self._vocabulary.constants or text in self._vocabulary.terms
        return text if is_public else self.names.name(text)

    def _metric(self, text: str) -> str:
        match = _METRIC.fullmatch(text)
        if match is None:
            return self._constant(text)

        def labelled(label: re.Match[str]) -> str:
            name, value = label.groups()
            public = name in _PUBLIC_LABELS
            value = self._constant(value) if public else self.names.name(value, "tenant") if value else value
            return f'{self._constant(name)}="{value}"'

        labels = ",".join(labelled(label) for label in _LABEL.finditer(match[2]))
        return f"{self._constant(match[1])}{{{labels}}}"

    def _value(self, text: str) -> str:
        """Return a value that stands alone, as in quotes: only names of the catalog and numbers stay."""
        if (pseudonym := self.names.learned(text)) is not None:
            return pseudonym
        if text in self._vocabulary.terms or _NUMBER.fullmatch(text) or is_loopback(text) or not text.strip():
            return text
        if (number := _as_id(text)) is not None:
            return str(self.names.id(number))
        return self.names.url(text) or self.names.name(text)

    def _document(self, text: str, judge: Callable[[str], str]) -> str:
        try:
            value = json.loads(text)
            public = self._json(value, judge)
            return text if public == value else json.dumps(public, ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.names.name(text, "text")

    def _json(self, value: object, judge: Callable[[str], str], key: str = "") -> object:
        if isinstance(value, str):
            return self._json_text(value, judge, key)
        if isinstance(value, dict):
            return dict(self._member(name, member, judge) for name, member in value.items())
        if isinstance(value, list):
            return [self._json(member, judge, key) for member in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return self.names.id(value) if key.endswith(("_id", "_ids")) else self.names.number(value)
        return value

    def _member(self, key: str, value: object, judge: Callable[[str], str]) -> tuple[str, object]:
        """Return a key and its value; of a fact whose key is unknown nothing is known either."""
        if key in self._vocabulary.fields:
            return key, self._json(value, judge, key)
        if is_owner_knob(key):
            prefix, _, name = key.rpartition(LABEL)
            return (prefix + LABEL + self.names.name(name) if LABEL in key else key), self._json(value, judge, key)
        return judge(key), self._json(value, self.names.name if judge == self._value else judge, key)

    def _json_text(self, text: str, judge: Callable[[str], str], key: str) -> str:
        if text[:1] in ("{", "["):
            return self._document(text, judge)
        if key.endswith("version"):
            return self.names.version(text)
        if key == WORKLOAD:
            kind, _, rest = text.partition(" ")
            return f"{self._constant(kind)} {'/'.join(p if p == '?' else self.names.name(p) for p in rest.split('/'))}"
        if key in _NAMED_KNOBS or is_owner_knob(key):
            return self.names.name(text)
        knob = knobs().get(key)
        if text in knob.values if knob is not None else key in _CODED_KEYS and text in self._vocabulary.constants:
            return text
        return judge(text)

    def _part(self, match: re.Match[str]) -> str:
        text = match[0]
        if match.lastgroup == "learned":
            return self.names.name(text)
        if match.lastgroup == "url":
            return text if text in self._vocabulary.terms else self.names.url(text) or self.names.name(text)
        if match.lastgroup == "quoted":
            return self._quoted(text)
        if match.lastgroup == "groups":
            return text if _CLOCK.fullmatch(text) else self.names.learned(text) or self.names.address(text)
        if match.lastgroup == "mark":
            return text if text in _MARKS else "?"
        preceding = match.string[max(0, match.start() - 20) : match.start()]
        return self._value(text) if preceding.endswith("=") else self._token(text, preceding)

    def _quoted(self, text: str) -> str:
        end = text[-1] if len(text) > 1 and (text[0] == text[-1] or (text[0], text[-1]) in _QUOTES) else ""
        return text[0] + self._value(text[1 : len(text) - len(end)]) + end

    def _token(self, text: str, preceding: str) -> str:
        for name in (text, text.casefold()):
            if (pseudonym := self.names.learned(name)) is not None:
                return pseudonym
        vocabulary = self._vocabulary
        if text in vocabulary.words or text in vocabulary.terms or _NUMBER.fullmatch(text) or is_loopback(text):
            return text
        if (
            text[:1].isupper()
            and text[:1].lower() + text[1:] in vocabulary.words
            and _FIRST_IN_SENTENCE.search(preceding)
        ):
            return text
        if (number := _as_id(text)) is not None:
            return str(self.names.id(number))
        published = self.names.name(text)
        if published == text or "/" not in text or text.startswith(("/", "~")):
            return published
        return "/".join(self.names.name(part) if part else "" for part in text.split("/"))


def column_name(column: Column[object]) -> str:
    """Return the name of a column with that of its table, as `NAMES` and `COLUMNS` have it."""
    return f"{column.table.name}.{column.name}"


def is_id(column: Column[object]) -> bool:
    """Return whether a column holds an id, or the id of a process."""
    return not isinstance(column.type, Text) and (column.name.endswith("_id") or column.name == "life")


def _as_id(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{10,20}", text) and abs(int(text)) >= SMALLEST_ID else None


def _scanner(names: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of all parts of a sentence; a name of several tokens is one part."""
    several = sorted((name for name in names if not TOKEN.fullmatch(name)), key=len, reverse=True)
    learned = "|".join(map(re.escape, several))
    return re.compile(rf"(?P<learned>(?<!\w)(?:{learned})(?!\w))|{_SCAN}" if learned else _SCAN, re.DOTALL)
