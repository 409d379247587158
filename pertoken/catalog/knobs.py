"""What each engine calls each knob: its command line read into our words, and a change written back as flags.

The facts are in `knobs.toml`; discovery and the advisor read the same table.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from pertoken.units import format_bytes

UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of the table; `knobs.toml` says what each field means."""

    engine: str
    knob: str
    type: str
    source: str
    as_of: Any
    flags: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    default: bool | None = None
    absent: int | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    unless_flags: tuple[str, ...] = ()
    unless_model: str | None = None
    per: str | None = None
    unit: int = 1
    member: str | None = None
    manual: str | None = None
    stop: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """How an engine is told something else than a knob: its model, its port, where its ranks meet."""

    engine: str
    argument: str
    source: str
    as_of: Any
    flags: tuple[str, ...]
    after: str | None = None
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of its environment that an engine takes a knob from, or its port or model."""

    engine: str
    name: str
    source: str
    as_of: Any
    knob: str | None = None
    argument: str | None = None
    type: str = "word"


@dataclass(frozen=True, slots=True)
class Table:
    """The whole of `knobs.toml`."""

    knobs: tuple[Knob, ...]
    arguments: tuple[Argument, ...]
    variables: tuple[Variable, ...]
    manual: Mapping[str, str]
    same: Mapping[str, str]
    """Engine -> the one whose flags and words it takes; its port is its own."""

    def of(self, engine: str, knob: str | None = None) -> tuple[Knob, ...]:
        """Rows of one engine, in order; of one knob only, if named."""
        like = self.same.get(engine, engine)
        return tuple(row for row in self.knobs if row.engine == like and knob in (None, row.knob))


@dataclass(frozen=True, slots=True)
class Commands:
    """How to make a change and how to take it back, for the next start of the server."""

    apply: tuple[str, ...] = ()
    """`set --flag value` or `remove --flag`."""
    undo: tuple[str, ...] = ()
    """The same, back to what it was."""
    manual: tuple[str, ...] = ()
    """What no flag expresses, as sentences."""


@cache
def table() -> Table:
    """The table as shipped."""
    rows = tomllib.loads(files("pertoken.catalog").joinpath("knobs.toml").read_text())
    return Table(
        tuple(Knob(**_frozen(row)) for row in rows["knob"]),
        tuple(Argument(**_frozen(row)) for row in rows["argument"]),
        tuple(Variable(**_frozen(row)) for row in rows["variable"]),
        rows["manual"],
        rows["same"],
    )


def read_argv(engine: str, argv: Sequence[str]) -> dict[str, object]:
    """Knobs that a server's command line sets, in the words of `Deployment`.

    The last of several settings counts, as in the engines. What the engine decides itself (`auto`, 0, -1), what is
    not understood and what the command line alone cannot tell is absent.
    """
    options = _options(argv)
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
        if row.type == "ranks" and row.knob in knobs:
            tp, dp = (knobs.get(size, 1) for size in ("tp", "dp"))
            known = isinstance(tp, int) and isinstance(dp, int)
            knobs[row.knob] = (tp * dp if known else None) if knobs[row.knob] else 1  # type: ignore[operator]
    return {knob: value for knob, value in knobs.items() if value is not None}


def read_absent(engine: str, argv: Sequence[str]) -> dict[str, object]:
    """Knobs that a server's command line leaves unset, where the engine then takes a fixed value."""
    options = _options(argv)
    return {
        row.knob: row.absent
        for row in table().of(engine)
        if argv and row.absent is not None and not _set(options, (*row.flags, *row.unless_flags))
    }


def like(engine: str) -> str:
    """Return the engine whose command line an engine takes; itself if it has its own."""
    return table().same.get(engine, engine)


def variables(engine: str) -> tuple[str, ...]:
    """Names of the variables that may be read of a server's environment: nothing else of it is."""
    return tuple(row.name for row in table().variables if row.engine == engine)


def read_environment(engine: str, environment: Mapping[str, str]) -> dict[str, object]:
    """Knobs that a server's environment sets, in the words of `Deployment`; what is not understood is absent."""
    knobs = {
        row.knob: _VARIABLES[row.type](environment[row.name])
        for row in table().variables
        if row.engine == engine and row.knob is not None and row.name in environment
    }
    return {knob: value for knob, value in knobs.items() if value is not None}


def variable_argument(engine: str, argument: str, environment: Mapping[str, str]) -> str | None:
    """The `port` or `model` that a server's environment names."""
    rows = (row for row in table().variables if (row.engine, row.argument) == (engine, argument))
    return next((environment[row.name] for row in rows if environment.get(row.name)), None)


def read_word(engine: str, knob: str, text: str) -> str | None:
    """Our word for what an engine reports of a knob: `torch.bfloat16` -> `bf16`. None if it has no plain one."""
    return next((row.words[text] for row in table().of(engine, knob) if text in row.words), None)


def model_argument(engine: str, argv: Sequence[str]) -> str | None:
    """The model a command line names: a path or a repository id."""
    programs = [PurePath(argument).name for argument in argv]
    for row in _arguments(table().same.get(engine, engine), "model"):
        spot = programs.index(row.after) + 1 if row.after in programs else len(argv)
        if spot < len(argv) and not argv[spot].startswith("-"):
            return argv[spot]
        if named := _last(_options(argv), row.flags):
            return named
    return None


def port_argument(engine: str, argv: Sequence[str]) -> int | None:
    """The port a command line names, else the engine's default; None if what it names is no port."""
    for row in _arguments(engine, "port"):
        options = _options(argv)
        return _whole(_last(options, row.flags) or "") if _set(options, row.flags) else row.default
    return None


def names_port(engine: str, argv: Sequence[str]) -> bool:
    """Whether a command line itself says the port, so that the server answers there or not yet."""
    return any(_set(_options(argv), row.flags) for row in _arguments(engine, "port"))


def tls_argument(engine: str, argv: Sequence[str]) -> bool:
    """Whether a command line makes the server answer by HTTPS alone."""
    return any(_set(_options(argv), row.flags) for row in _arguments(engine, "tls"))


def rendezvous_argument(engine: str, argv: Sequence[str]) -> str | None:
    """The address at which a command line lets ranks of several hosts meet; None if they all are on one."""
    addresses = (_last(_options(argv), row.flags) for row in _arguments(engine, "rendezvous"))
    return next((address for address in addresses if address), None)


def follows_argument(engine: str, argv: Sequence[str]) -> bool:
    """Whether a command line is that of ranks which another host leads, so that they answer no requests."""
    values = (_last(_options(argv), row.flags) for row in _arguments(engine, "follows"))
    return any(value not in (None, "0") for value in values)


def executor_argument(engine: str, argv: Sequence[str]) -> str | None:
    """What a command line has start the ranks: `ray`, `mp`; None if it does not say."""
    names = (_last(_options(argv), row.flags) for row in _arguments(engine, "executor"))
    return next((name for name in names if name), None)


def layout(engine: str, split_mode: str, devices: int) -> dict[str, object]:
    """Parallel sizes of an engine that spreads a model over all the devices it holds, by how it splits it.

    `layer` splits are pipeline stages and `row` splits tensor-parallel ranks; with `none` it computes on one device.
    """
    sizes = {"layer": (1, devices), "row": (devices, 1), "none": (1, 1)}
    if engine != "llama.cpp" or devices < 1 or (split_mode not in sizes and devices > 1):
        return {}
    tp, pp = sizes.get(split_mode, (1, 1))
    return {"tp": tp, "pp": pp, "dp": 1}


def split_arguments(engine: str, argv: Sequence[str]) -> tuple[str | None, int | None]:
    """How a command line has a model split over devices (`layer`, `row`, `none`), and over how many if it says so.

    (None, None) for an engine that is told sizes instead, or nothing of its command line is known.
    """
    options = _options(argv)
    modes = [_last(options, row.flags) or "layer" for row in _arguments(engine, "split_mode") if argv]
    parts = [_last(options, row.flags) for row in _arguments(engine, "tensor_split")]
    named = [part for part in parts if part]
    shares = [part for part in re.split("[,/]", named[0]) if re.fullmatch(r"[0-9]*\.?[0-9]+", part)] if named else []
    return (modes[0] if modes else None), (sum(float(share) > 0 for share in shares) or None)


def commands(engine: str, changes: Mapping[str, tuple[Any, Any]], present: Mapping[str, Any] | None = None) -> Commands:
    """Flags for `{knob: (old, new)}` when the server is restarted, their undo, and what no flag expresses.

    An old value of None was not set by a flag, so its undo is to remove the new flag. `present` are the knobs that
    stay: a flag that holds one of them times a changed one (`--ctx-size`) is written with it.
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
        elif any(not _writable(rows, value) for value in (old, new)) or _may_be_a_member(rows, old):
            text = next((row.manual for row in rows if row.manual), None)
            without = f"change {knob} from {{old}} to {{new}}: no flag of {engine} is known for it"
            manual.append((text or without).format(**values))
        else:
            apply += filter(None, [_move(rows, old, new)])
            undo += filter(None, [_move(rows, new, old)])
            whole = _whole_flags(engine, knob, (old, new), present or {})
            apply += [f"set {flag} {after}" for flag, _, after in whole]
            undo += [f"set {flag} {before}" for flag, before, _ in whole]
            manual += [row.note.format(**values) for row in rows if row.note and not whole]
    return Commands(tuple(apply), tuple(undo), tuple(manual))


def _whole_flags(
    engine: str, knob: str, change: tuple[Any, Any], present: Mapping[str, Any]
) -> list[tuple[str, int, int]]:
    """Return the flags that hold another knob times this one, before and after, where both are known."""
    known = [(row.flags[0], present.get(row.knob)) for row in table().of(engine) if row.per == knob and row.flags]
    counts = all(type(value) is int for value in change)
    return [(flag, count * change[0], count * change[1]) for flag, count in known if counts and count is not None]


# -- reading ---------------------------------------------------------------------------------------------------

_Options = Mapping[str, tuple[int, str]]
"""Place and value (the text after `=`, else the next argument) of each flag's last appearance."""


def _options(argv: Sequence[str]) -> _Options:
    options: dict[str, tuple[int, str]] = {}
    for place, argument in enumerate(argv):
        if argument.startswith("-"):
            flag, inline, value = argument.partition("=")
            following = argv[place + 1] if place + 1 < len(argv) else ""
            options[_plain(flag)] = (place, value if inline else following)
    return options


def _plain(flag: str) -> str:
    # vLLM, SGLang and llama.cpp take --max_num_seqs for --max-num-seqs; TensorRT-LLM has only the former.
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _set(options: _Options, flags: Sequence[str]) -> bool:
    return any(_plain(flag) in options for flag in flags)


def _last(options: _Options, flags: Sequence[str]) -> str | None:
    return max((options[_plain(flag)] for flag in flags if _plain(flag) in options), default=(0, None))[1]


def _read(row: Knob, options: _Options) -> object:
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
    """A whole number of a JSON object, or the number itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = value.get(name) if isinstance(value, dict) else value
    return _whole(str(value)) if type(value) is int else None


_VARIABLES: Mapping[str, Callable[[str], object]] = {
    "int": _whole,
    "float": _part,
    "bool": lambda text: {"1": True, "true": True, "0": False, "false": False}.get(text.lower()),
}
_READERS: Mapping[str, Callable[[Knob, str], object]] = {
    "int": lambda row, text: _whole(text),
    "count": lambda row, text: _count(text),
    "float": lambda row, text: _part(text),
    "word": lambda row, text: row.words.get(text),
    "json": lambda row, text: _member(row.member, text),
}


def _arguments(engine: str, argument: str) -> tuple[Argument, ...]:
    return tuple(row for row in table().arguments if (row.engine, row.argument) == (engine, argument))


# -- writing ---------------------------------------------------------------------------------------------------


def _writable(rows: Sequence[Knob], value: object) -> bool:
    """Whether a flag can state a value; that nothing is set needs none."""
    return value is None or _writer(rows, value) is not None


def _may_be_a_member(rows: Sequence[Knob], old: object) -> bool:
    """Whether the present value may stand in a JSON argument, where a flag beside it would contradict it."""
    return old is not None and any(row.type == "json" for row in rows)


def _writer(rows: Sequence[Knob], value: object) -> int | None:
    """Place of the row that can write this value."""
    return next((place for place, row in enumerate(rows) if _flags(row, value) is not None), None)


def _flags(row: Knob, value: object) -> tuple[tuple[str, str], ...] | None:
    """(flag, text after it) to write, none for what is so without; None if this row cannot say the value."""
    if row.type == "bool":
        flags = row.flags if value else row.off_flags
        by_absence = row.default is value and bool(row.flags or row.off_flags)
        return ((flags[0], ""),) if flags else () if by_absence else None
    if row.type == "ranks":
        return ((row.flags[0], ""),) if value != 1 else ()
    if not row.flags or row.per is not None or row.type == "json":
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


def _move(rows: Sequence[Knob], old: object, new: object) -> str:
    """The flags that lead from one value to another; a row overrides those after it as long as its flag is set."""
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
    """Return the value of a knob in a sentence."""
    return format_bytes(value) if knob.endswith("_bytes") and isinstance(value, int) else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if value is None:
        return "what it is now"
    if isinstance(value, float):
        return f"{value:g}"
    return str(getattr(value, "name", value))


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
