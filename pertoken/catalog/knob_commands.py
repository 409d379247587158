"""Changes of knobs as command-line flags of an engine, with their undo.

The facts are in `knobs.toml`, read by `pertoken.catalog.knobs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pertoken.catalog.knobs import Knob, table
from pertoken.units import format_bytes


@dataclass(frozen=True, slots=True)
class Commands:
    """Flags that apply and undo a change at the next start of the server."""

    apply: tuple[str, ...] = ()
    """`set --flag value` or `remove --flag`."""
    undo: tuple[str, ...] = ()
    """The same, to restore the previous values."""
    manual: tuple[str, ...] = ()
    """Sentences for changes without a flag."""


def commands(engine: str, changes: Mapping[str, tuple[Any, Any]], present: Mapping[str, Any] | None = None) -> Commands:
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
        elif any(row.per and _are_counts((old, new), changes.get(row.per, (None, None))) for row in rows):
            continue  # the flags of the other knob have their product
        elif any(not _writable(rows, value) for value in (old, new)) or _may_be_a_member(rows, old):
            text = next((row.manual for row in rows if row.manual), None)
            without = f"change {knob} from {{old}} to {{new}}: no flag of {engine} is known for it"
            manual.append((text or without).format(**values))
        else:
            apply += filter(None, [_move(rows, old, new)])
            undo += filter(None, [_move(rows, new, old)])
            whole = _whole_flags(engine, knob, (old, new), {**_unchanged(present or {}), **changes})
            apply += [f"set {flag} {after}" for flag, _, after in whole]
            undo += [f"set {flag} {before}" for flag, before, _ in whole]
            manual += [row.note.format(**values) for row in rows if row.note and not whole]
    return Commands(tuple(apply), tuple(undo), tuple(manual))


def _unchanged(present: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {knob: (value, value) for knob, value in present.items()}


def _whole_flags(
    engine: str, knob: str, change: tuple[Any, Any], values: Mapping[str, tuple[Any, Any]]
) -> list[tuple[str, int, int]]:
    """Return flags whose value is another knob times this one, with values before and after, if both are known."""
    parts = [(row.flags[0], values[row.knob]) for row in table().of(engine) if row.per == knob and row.knob in values]
    return [(flag, part[0] * change[0], part[1] * change[1]) for flag, part in parts if _are_counts(change, part)]


def _are_counts(*changes: tuple[Any, Any]) -> bool:
    return all(type(value) is int for change in changes for value in change)


def _writable(rows: Sequence[Knob], value: object) -> bool:
    """Return whether a flag can express a value; None (not set) needs no flag."""
    return value is None or _writer(rows, value) is not None


def _may_be_a_member(rows: Sequence[Knob], old: object) -> bool:
    """Return whether the present value may be part of a JSON argument, which a separate flag would contradict."""
    return old is not None and any(row.type == "json" for row in rows)


def _writer(rows: Sequence[Knob], value: object) -> int | None:
    """Return the position of the first row that can write this value; None if there is none."""
    return next((place for place, row in enumerate(rows) if _flags(row, value) is not None), None)


def _flags(row: Knob, value: object) -> tuple[tuple[str, str], ...] | None:
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


def _move(rows: Sequence[Knob], old: object, new: object) -> str:
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
