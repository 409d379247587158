"""Flags of each engine for each knob: reading a command line or environment into knobs of a `Deployment`.

The facts are in `knobs.toml`; discovery and the advisor read the same table. `knob_commands` writes flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, lru_cache
from pathlib import PurePath

from pertoken.catalog.offers import toml_table
from pertoken.units import format_bytes

UNDETERMINED = "undetermined"
"""Name, beside those of knobs, of a text with the knobs that are set to a word which this program does not know."""
_BETWEEN_SERVERS = re.compile(r"(Nixl|P2pNccl|PyNccl|Mooncake(?!Store)|MoRIIO)\w*")
"""Connectors of vLLM between servers; others keep KV caches in memory or on disks."""
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class ListedKnob:
    """One row of the table; `knobs.toml` explains each field."""

    engine: str
    knob: str
    type: str
    source: str
    as_of: date
    flags: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    default: bool | None = None
    absent: int | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    auto: tuple[str, ...] = ("auto", "none", "None", "")
    unless_flags: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unless_model: str | None = None
    per: str | None = None
    unit: int = 1
    member: str | None = None
    manual: str | None = None
    stop: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """Flag of an engine for something other than a knob: its model, its port, the rendezvous address of its ranks."""

    engine: str
    argument: str
    source: str
    as_of: date
    flags: tuple[str, ...]
    after: str | None = None
    unless: tuple[str, ...] = ()
    default: int | None = None


@dataclass(frozen=True, slots=True)
class LayoutFlags:
    """Flags of an engine beside which a parallel size is not the number of ranks that the server itself has."""

    engine: str
    knob: str
    flags: tuple[str, ...]
    source: str
    as_of: date
    size: int | None = None
    size_flags: tuple[str, ...] = ()
    per: str | None = None
    unless: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """Environment variable of an engine for a knob, its port or its model."""

    engine: str
    name: str
    source: str
    as_of: date
    knob: str | None = None
    argument: str | None = None
    type: str = "word"


@dataclass(frozen=True, slots=True)
class KnobTable:
    """Content of `knobs.toml`."""

    knobs: tuple[ListedKnob, ...]
    arguments: tuple[Argument, ...]
    layouts: tuple[LayoutFlags, ...]
    variables: tuple[Variable, ...]
    manual: Mapping[str, str]
    same: Mapping[str, str]
    """Engine -> the engine with the same flags and values; its port may differ."""
    abbreviates: tuple[str, ...]
    """Engines whose parser takes every beginning of a flag that no other flag has."""
    bare: Mapping[str, tuple[str, ...]]
    """Engine -> flags without a value, beside those of knobs."""

    def of(self, engine: str, knob: str | None = None) -> tuple[ListedKnob, ...]:
        """Return the rows of one engine in order, or only those of `knob`."""
        shared = self.same.get(engine, engine)
        return tuple(row for row in self.knobs if row.engine == shared and knob in (None, row.knob))


@cache
def table() -> KnobTable:
    """Return the content of the packaged `knobs.toml`."""
    rows = toml_table("knobs.toml")
    return KnobTable(
        tuple(ListedKnob(**row) for row in rows["knob"]),
        tuple(Argument(**row) for row in rows["argument"]),
        tuple(LayoutFlags(**row) for row in rows["layout"]),
        tuple(Variable(**row) for row in rows["variable"]),
        rows["manual"],
        rows["same"],
        rows["parser"]["abbreviates"],
        rows["parser"]["bare"],
    )


def read_argv(engine: str, argv: Sequence[str]) -> dict[str, object]:
    """Return the knobs that a server's command line sets, with the names and values of `Deployment`.

    The last of repeated flags counts, as in the engines. Values that the engine chooses (`auto`, 0, -1), unknown
    values, and values that depend on more than the command line are absent.
    """
    options = _options(engine, argv)
    model = model_argument(engine, argv) or ""
    knobs: dict[str, object] = {}
    for row in table().of(engine):
        if row.knob in knobs or not _set(options, (*row.flags, *row.off_flags)):
            continue
        misled = _set(options, row.unless_flags) or (row.unless_model and re.search(row.unless_model, model))
        knobs[row.knob] = None if misled else _read(row, options)
    for row in table().of(engine):
        if row.per is not None and knobs.get(row.knob) is not None:
            whole, parts = knobs[row.knob], knobs.get(row.per)
            knobs[row.knob] = whole // parts if isinstance(whole, int) and isinstance(parts, int) else None
    knobs |= _layout(engine, options, knobs)
    absent = read_absent(engine, argv)
    for row in table().of(engine):
        if row.type == "ranks" and row.knob in knobs:
            tp, dp = (knobs.get(size, absent.get(size)) for size in ("tp", "dp"))
            is_sized = isinstance(tp, int) and isinstance(dp, int)
            knobs[row.knob] = (tp * dp if is_sized else None) if knobs[row.knob] else 1  # type: ignore[operator]
    unclear = _undetermined(engine, options, knobs)
    beside = {UNDETERMINED: unclear} if unclear else {}
    return {knob: value for knob, value in knobs.items() if value is not None} | beside


def _layout(engine: str, options: _Options, knobs: Mapping[str, object]) -> dict[str, object]:
    """Return the parallel sizes of the server itself, where a flag makes them others than the flags of sizes name."""
    sizes: dict[str, object] = {}
    for row in table().layouts:
        if row.engine != like(engine) or row.knob in sizes or not _set(options, row.flags):
            continue
        if row.per is not None:
            product, parts = knobs.get(row.knob), knobs.get(row.per, 1)
            fits = isinstance(product, int) and isinstance(parts, int) and product % parts == 0
            sizes[row.knob] = product // parts if fits else None  # type: ignore[operator]
        elif row.size_flags:
            if _last(options, row.flags) == "0" or _set(options, row.unless):  # a first rank may lead all of them
                continue
            sizes[row.knob] = _whole(_last(options, row.size_flags) or "")
        elif _last(options, row.flags) != "1":  # a size of 1 multiplies nothing
            sizes |= dict.fromkeys((row.knob, "pp", "dp")) if row.size is None else {row.knob: row.size}
    return sizes


def _undetermined(engine: str, options: _Options, knobs: Mapping[str, object]) -> str:
    """Return the knobs that a flag sets to a word which is not known, or that a file may set which the flags name."""
    unclear = set()
    for row in table().of(engine):
        if row.type != "word" or knobs.get(row.knob) is not None:
            continue
        word = _last(options, row.flags)
        differs = bool(row.also) and word != _last(options, row.also)
        unknown = word is not None and word not in row.words and word not in row.auto
        if unknown or differs or _set(options, row.files):
            unclear.add(row.knob)
    return " ".join(sorted(unclear))


def read_absent(engine: str, argv: Sequence[str]) -> dict[str, object]:
    """Return the fixed values of knobs that a server's command line leaves unset."""
    options = _options(engine, argv)
    return {
        row.knob: row.absent
        for row in table().of(engine)
        if argv and row.absent is not None and not _set(options, (*row.flags, *row.unless_flags, *row.files))
    }


def merged(knobs: Mapping[str, object], newer: Mapping[str, object]) -> dict[str, object]:
    """Return knobs of two sources, the newer first; one is undetermined only where neither source knows it."""
    both = {**knobs, **newer}
    unclear = {*undetermined(knobs), *undetermined(newer)} - both.keys()
    values = {name: value for name, value in both.items() if name != UNDETERMINED}
    return values | ({UNDETERMINED: " ".join(sorted(unclear))} if unclear else {})


def undetermined(knobs: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the knobs that are set to a word which this program does not know."""
    return tuple(str(knobs.get(UNDETERMINED, "")).split())


def like(engine: str) -> str:
    """Return the engine with the same command line as this one; itself if it has its own."""
    return table().same.get(engine, engine)


def variables(engine: str) -> tuple[str, ...]:
    """Return the names of environment variables to read from a server; no others are read."""
    return tuple(row.name for row in table().variables if row.engine == engine)


def layout_variables(engine: str) -> tuple[str, ...]:
    """Return the names of variables that lay an engine out over devices: an unset flag then has no known value."""
    return tuple(row.name for row in table().variables if row.engine == engine and row.knob in ("tp", "pp"))


def read_environment(engine: str, environment: Mapping[str, str]) -> dict[str, object]:
    """Return the knobs that a server's environment sets, in values of `Deployment`; unknown values are absent."""
    knobs = {
        row.knob: read_word(engine, row.knob, text) if row.type == "word" else _VARIABLES[row.type](text)
        for row in table().variables
        if row.engine == engine and row.knob is not None and (text := environment.get(row.name)) is not None
    }
    return {knob: value for knob, value in knobs.items() if value is not None}


def variable_argument(engine: str, argument: str, environment: Mapping[str, str]) -> str | None:
    """Return the `port` or `model` in a server's environment; None if unset."""
    rows = (row for row in table().variables if (row.engine, row.argument) == (engine, argument))
    return next((environment[row.name] for row in rows if environment.get(row.name)), None)


def read_words(engine: str, reported: Mapping[str, str | None]) -> dict[str, object]:
    """Return knobs by the words that an engine reports of them; one with a word that is not known is undetermined."""
    words = {knob: text for knob, text in reported.items() if text is not None}
    knobs: dict[str, object] = {knob: read_word(engine, knob, text) for knob, text in words.items()}
    rows = {row.knob: row for row in table().of(engine) if row.knob in words}
    unclear = [knob for knob, row in rows.items() if knobs[knob] is None and words[knob] not in row.auto]
    values = {knob: value for knob, value in knobs.items() if value is not None}
    return {**values, UNDETERMINED: " ".join(sorted(unclear))} if unclear else values


def read_word(engine: str, knob: str, text: str) -> str | None:
    """Return the value of a knob for an engine's own notation: `bf16` for `torch.bfloat16`. None if there is none."""
    return next((row.words[text] for row in table().of(engine, knob) if text in row.words), None)


def model_argument(engine: str, argv: Sequence[str]) -> str | None:
    """Return the model that a command line names, a path or a repository id; None if it names none."""
    programs = [PurePath(argument).name for argument in argv]
    for row in (*_arguments(engine, "model"), *_arguments(table().same.get(engine, ""), "model")):
        if row.after in programs and (named := _positional(engine, argv[programs.index(row.after) + 1 :], row.unless)):
            return named
        if named := _last(_options(engine, argv), row.flags):
            return named
    return None


def _positional(engine: str, arguments: Sequence[str], commands: Sequence[str]) -> str | None:
    """Return the argument that is neither a flag nor its value; None after a flag of which that is not known.

    `commands` are words in its place that begin another command.
    """
    flags, bare = _flags_of(like(engine))
    values = 0
    for argument in arguments:
        if argument.startswith("-"):
            flag, inline, _ = argument.partition("=")
            name = _resolved(engine, _plain(flag))
            # After a flag that is not known follow any number of values.
            values = 0 if inline or name in bare else 1 if name in flags else len(arguments)
        elif values:
            values -= 1
        else:
            return None if argument in commands else argument
    return None


def port_argument(engine: str, argv: Sequence[str]) -> int | None:
    """Return the port that a command line names, else the engine's default; None for an invalid port."""
    for row in _arguments(engine, "port"):
        options = _options(engine, argv)
        return _whole(_last(options, row.flags) or "") if _set(options, row.flags) else row.default
    return None


def names_port(engine: str, argv: Sequence[str]) -> bool:
    """Return whether a command line names the port, so that no other port needs to be tried."""
    return any(_set(_options(engine, argv), row.flags) for row in _arguments(engine, "port"))


def sets_flag(engine: str, argv: Sequence[str], flags: Sequence[str]) -> bool:
    """Return whether a command line sets one of these flags of an engine."""
    return _set(_options(engine, argv), flags)


def whole_argument(engine: str, argv: Sequence[str], flags: Sequence[str]) -> int | None:
    """Return the whole number above 0 that a command line gives one of these flags of an engine."""
    return _whole(_last(_options(engine, argv), flags) or "")


def tls_argument(engine: str, argv: Sequence[str]) -> bool:
    """Return whether a command line makes the server accept HTTPS only."""
    return any(_set(_options(engine, argv), row.flags) for row in _arguments(engine, "tls"))


def connector_argument(engine: str, argv: Sequence[str]) -> str | None:
    """Return the connector by which a server sends KV caches to other servers or receives them; None without one."""
    texts = (_last(_options(engine, argv), row.flags) or "" for row in _arguments(like(engine), "connector"))
    return next((match[0] for text in texts if (match := _BETWEEN_SERVERS.search(text))), None)


def sleep_argument(engine: str, argv: Sequence[str]) -> int | None:
    """Return the seconds without a request after which a server unloads its model; None if it never does."""
    return next((seconds for text in _values(engine, argv, "sleep") if (seconds := _whole(text))), None)


def socket_argument(engine: str, argv: Sequence[str]) -> str | None:
    """Return the path of the Unix socket at which a server answers in place of a port; None if there is none."""
    return next(_values(engine, argv, "socket"), None)


def rendezvous_argument(engine: str, argv: Sequence[str]) -> str | None:
    """Return the rendezvous address of ranks on several hosts; None if all ranks are on one host."""
    return next(_values(engine, argv, "rendezvous"), None)


def follows_argument(engine: str, argv: Sequence[str]) -> bool:
    """Return whether a command line starts worker ranks, which serve no requests: the head rank is on another host."""
    values = (_last(_options(engine, argv), row.flags) for row in _arguments(engine, "follows"))
    return any(value not in (None, "0") for value in values)


def executor_argument(engine: str, argv: Sequence[str]) -> str | None:
    """Return the executor that starts the ranks: `ray` or `mp`; None if the command line names none."""
    return next(_values(engine, argv, "executor"), None)


def layout(engine: str, split_mode: str, devices: int) -> dict[str, object]:
    """Return the parallel sizes (`tp`, `pp`, `dp`) of an engine that splits a model over all its devices.

    `layer` splits are pipeline stages and `row` splits tensor-parallel ranks; with `none` it uses one device.
    """
    sizes = {"layer": (1, devices), "row": (devices, 1), "none": (1, 1)}
    if engine != "llama.cpp" or devices < 1 or (split_mode not in sizes and devices > 1):
        return {}
    tp, pp = sizes.get(split_mode, (1, 1))
    return {"tp": tp, "pp": pp, "dp": 1}


def split_arguments(engine: str, argv: Sequence[str]) -> tuple[str | None, int | None]:
    """Return the split mode of a command line (`layer`, `row`, `none`), and the number of devices if it names them.

    Return (None, None) for an engine with flags for parallel sizes, or without a known command line.
    """
    options = _options(engine, argv)
    modes = [_last(options, row.flags) or "layer" for row in _arguments(engine, "split_mode") if argv]
    split = next(_values(engine, argv, "tensor_split"), "")
    shares = [part for part in re.split("[,/]", split) if re.fullmatch(r"[0-9]*\.?[0-9]+", part)]
    return (modes[0] if modes else None), (sum(float(share) > 0 for share in shares) or None)


_Options = Mapping[str, tuple[int, str]]
"""Position and value (the text after `=`, else the next argument) of the last occurrence of each flag."""


def _options(engine: str, argv: Sequence[str]) -> _Options:
    return _options_of(engine, tuple(argv))


@lru_cache(maxsize=1024)  # every argument of every server is looked up in it at each look
def _options_of(engine: str, argv: tuple[str, ...]) -> _Options:
    options: dict[str, tuple[int, str]] = {}
    for index, argument in enumerate(argv):
        if argument.startswith("-"):
            flag, inline, value = argument.partition("=")
            following = argv[index + 1] if index + 1 < len(argv) else ""
            name = _resolved(engine, _plain(flag))
            if name == "-" + argument[1:2] != flag:  # `-qfp8`
                inline, value = "=", argument[2:]
            options[name] = (index, value if inline else following)
    return options


def _resolved(engine: str, flag: str) -> str:
    """Return the flag that the engine's parser takes an abbreviated one for; itself if it is none that is known."""
    flags, _ = _flags_of(like(engine))
    if flag in flags or like(engine) not in table().abbreviates or flag in ("-", "--"):
        return flag
    longer = {full for full in flags if full.startswith(flag)}
    if not longer and flag[:2] in flags:
        return flag[:2]  # its value stands in the same word
    return longer.pop() if len(longer) == 1 else flag


@cache
def _flags_of(engine: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the flags of an engine that are known here, and those of them that take no value."""
    facts = table()
    switches = {
        flag
        for row in facts.knobs
        if row.engine == engine and row.type in ("bool", "ranks", "present")
        for flag in (*row.flags, *row.off_flags)
    }
    bare = {*switches, *facts.bare.get(engine, ())}
    rows: tuple[ListedKnob | Argument | LayoutFlags, ...] = (*facts.knobs, *facts.arguments, *facts.layouts)
    valued = {
        flag
        for row in rows
        if row.engine == engine
        for names in ("flags", "also", "files", "size_flags")
        for flag in getattr(row, names, ())
    }
    off = {flag for row in facts.knobs if row.engine == engine for flag in row.unless_flags}
    return frozenset(map(_plain, bare | valued | off)), frozenset(map(_plain, bare))


def _plain(flag: str) -> str:
    # vLLM, SGLang and llama.cpp accept --max_num_seqs for --max-num-seqs; TensorRT-LLM has only the former.
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _set(options: _Options, flags: Sequence[str]) -> bool:
    return any(_plain(flag) in options for flag in flags)


def _last(options: _Options, flags: Sequence[str]) -> str | None:
    return max((options[_plain(flag)] for flag in flags if _plain(flag) in options), default=(0, None))[1]


def _read(row: ListedKnob, options: _Options) -> object:
    if row.type in ("bool", "ranks"):
        places = {flag: options[_plain(flag)][0] for flag in (*row.flags, *row.off_flags) if _plain(flag) in options}
        return max(places, key=lambda flag: places[flag]) in row.flags
    value = _READERS[row.type](row, _last(options, row.flags) or "")
    if row.unit != 1 and isinstance(value, int):
        value *= row.unit
    if row.also and value != _READERS[row.type](row, _last(options, row.also) or ""):
        return None
    return value


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) and int(text) > 0 else None


def _count(text: str) -> int | None:
    if match := re.fullmatch(r"([0-9]{1,15})([kmgtKMGT])", text):
        return _whole(match[1]) and int(match[1]) * UNITS[match[2]]
    if match := re.fullmatch(r"([0-9]{1,15}\.[0-9]{1,9})([kmgt])", text):
        return round(float(match[1]) * UNITS[match[2]]) or None
    return _whole(text)


def _part(text: str) -> float | None:
    return float(text) if re.fullmatch(r"0?\.[0-9]+|[01](\.[0-9]*)?", text) and 0 < float(text) <= 1 else None


def _member(name: str | None, text: str) -> int | None:
    """Return a whole number from a JSON object, or the JSON number itself; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = value.get(name) if isinstance(value, dict) else value
    return _whole(str(value)) if type(value) is int else None


def _word_member(row: ListedKnob, text: str) -> str | None:
    """Return the value of a knob for a word in a JSON object, or for the word itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    word = value.get(row.member) if isinstance(value, dict) else value
    return row.words.get(word) if isinstance(word, str) else None


_VARIABLES: Mapping[str, Callable[[str], object]] = {
    "int": _whole,
    "float": _part,
    "bool": lambda text: {"1": True, "true": True, "0": False, "false": False}.get(text.lower()),
}
_READERS: Mapping[str, Callable[[ListedKnob, str], object]] = {
    "int": lambda row, text: _whole(text),
    "count": lambda row, text: _count(text),
    "float": lambda row, text: _part(text),
    "word": lambda row, text: row.words.get(text),
    "json": lambda row, text: _member(row.member, text),
    "member": _word_member,
    "present": lambda row, text: row.member,
}


def _values(engine: str, argv: Sequence[str], argument: str) -> Iterator[str]:
    """Yield the values that a command line gives the flags of an argument, without empty ones."""
    options = _options(engine, argv)
    texts = (_last(options, row.flags) for row in _arguments(engine, argument))
    return (text for text in texts if text)


def _arguments(engine: str, argument: str) -> tuple[Argument, ...]:
    return tuple(row for row in table().arguments if (row.engine, row.argument) == (engine, argument))


@dataclass(frozen=True, slots=True)
class Commands:
    """Flags that apply and undo a change at the next start of the server."""

    apply: tuple[str, ...] = ()
    """`set --flag value` or `remove --flag`."""
    undo: tuple[str, ...] = ()
    """The same, to restore the previous values."""
    manual: tuple[str, ...] = ()
    """Sentences for changes without a flag."""


Change = tuple[object, object]
"""Old and new value of a knob."""


def flag_commands(engine: str, changes: Mapping[str, Change], present: Mapping[str, object] | None = None) -> Commands:
    """Return the flags for changes `{knob: (old, new)}`, their undo, and sentences for changes without a flag.

    An old value of None was not set by a flag, so its undo removes the new flag. `present` are the unchanged knobs,
    for flags whose value is the product of two knobs (`--ctx-size`).
    """
    apply: list[str] = []
    undo: list[str] = []
    manual: list[str] = []
    for knob, (old, new) in changes.items():
        rows = table().of(engine, knob)
        values = {"old": _named(knob, old), "new": _named(knob, new)}
        if knob in table().manual:
            manual.append(table().manual[knob].format(**values))
        elif new == 0 and (stop := next((row.stop for row in rows if row.stop), None)):
            manual.append(stop)
        elif any(row.per and _counts((old, new)) and _counts(changes.get(row.per)) for row in rows):
            continue  # the flags of the other knob have their product
        elif any(not _writable(rows, value) for value in (old, new)) or _may_be_a_member(rows, old):
            text = next((row.manual for row in rows if row.manual), None)
            without = f"change {knob} from {{old}} to {{new}}: no flag of {engine} is known for it"
            manual.append((text or without).format(**values))
        else:
            apply += filter(None, [_move(rows, old, new)])
            undo += filter(None, [_move(rows, new, old)])
            unchanged = {name: (value, value) for name, value in (present or {}).items()}
            products = _product_flags(engine, knob, (old, new), {**unchanged, **changes})
            apply += [f"set {flag} {product}" for flag, _, product in products]
            undo += [f"set {flag} {product}" for flag, product, _ in products]
            manual += [row.note.format(**values) for row in rows if row.note and not products]
    return Commands(tuple(apply), tuple(undo), tuple(manual))


def _product_flags(engine: str, knob: str, change: Change, changes: Mapping[str, Change]) -> list[tuple[str, int, int]]:
    """Return the flags for the product of another knob and this one, with old and new product; all known ones."""
    counts = _counts(change)
    factors = ((row.flags[0], _counts(changes.get(row.knob))) for row in table().of(engine) if row.per == knob)
    return [(flag, per[0] * counts[0], per[1] * counts[1]) for flag, per in factors if counts and per]


def _counts(change: Change | None) -> tuple[int, int] | None:
    """Return both values of a change if they are whole numbers."""
    old, new = change or (None, None)
    return (old, new) if type(old) is int and type(new) is int else None


def _writable(rows: Sequence[ListedKnob], value: object) -> bool:
    """Return whether a flag can express a value; None (not set) needs no flag."""
    return value is None or _writer(rows, value) is not None


def _may_be_a_member(rows: Sequence[ListedKnob], old: object) -> bool:
    """Return whether the present value may be part of a JSON argument, which a separate flag would contradict."""
    return old is not None and any(row.type == "json" for row in rows)


def _writer(rows: Sequence[ListedKnob], value: object) -> int | None:
    """Return the position of the first row that can write this value; None if there is none."""
    return next((index for index, row in enumerate(rows) if _flags(row, value) is not None), None)


def _flags(row: ListedKnob, value: object) -> tuple[tuple[str, str], ...] | None:
    """Return pairs of flag and value to write, empty if the default suffices; None if this row cannot express it."""
    if row.type == "bool":
        flags = row.flags if value else row.off_flags
        by_absence = row.default is value and bool(row.flags or row.off_flags)
        return ((flags[0], ""),) if flags else () if by_absence else None
    if row.type == "ranks":
        return ((row.flags[0], ""),) if value != 1 else ()
    if not row.flags or row.per is not None or row.type in ("json", "member", "present"):
        return None
    if row.type == "word":
        if value not in row.write:
            return None
        text = row.write[str(value)]
    elif row.unit != 1:
        text = f"{value / row.unit:.0f}" if isinstance(value, int) else _shown(value)
    else:
        text = _shown(value)
    return tuple((flag, f" {text}") for flag in (row.flags[0], *row.also[:1]))


def _move(rows: Sequence[ListedKnob], old: object, new: object) -> str:
    """Return the flags that change one value to another; a row overrides later ones while its flag is set."""
    from_row = None if old is None else _writer(rows, old)
    to_row = None if new is None else _writer(rows, new)
    uncovered = to_row is None or (from_row is not None and from_row < to_row)
    at_default = from_row is not None and rows[from_row].type == "bool" and rows[from_row].default is new
    if from_row is not None and (uncovered or at_default):
        flags = " ".join(flag for flag, _ in _flags(rows[from_row], old) or ())
        return f"remove {flags}" if flags else ""
    assert to_row is not None
    if not _flags(rows[to_row], new):
        return "remove " + " ".join((*rows[to_row].flags, *rows[to_row].off_flags)[:1])
    return "set " + " ".join(f"{flag}{text}" for flag, text in _flags(rows[to_row], new) or ())


def _named(knob: str, value: object) -> str:
    """Return the value of a knob for a sentence."""
    return format_bytes(value) if knob.endswith("_bytes") and isinstance(value, int) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if value is None:
        return "the present value"
    if isinstance(value, float):
        return f"{value:g}"
    return str(getattr(value, "name", value))
