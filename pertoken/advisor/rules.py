"""Finding and loading rules: by entry point, or from a file of one's own. One bad plugin stops nothing else."""

import importlib.util
import traceback
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from pertoken.errors import BadInput
from pertoken.rule import Rule

GROUP = "pertoken.rules"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A place where a rule was looked for, and what came of it."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    rules: tuple[Rule, ...] = ()
    error: str | None = None
    """Traceback of a failed load."""


def load_rules(extra_files: tuple[Path, ...] = ()) -> tuple[Loaded, ...]:
    """Every rule by entry point, then those in `extra_files`; a later rule of the same id is refused, not mixed.

    Raises BadInput for a file that is not there; whatever a plugin itself raises is kept in its `Loaded`.
    """
    for file in extra_files:
        if not file.is_file():
            raise BadInput(f"--rule {file}: no such file")
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    found: list[Loaded] = []
    taken: dict[str, str] = {}
    for name, origin, load in [
        *((point.name, _origin(point), point.load) for point in points),
        *((file.stem, str(file), lambda file=file: _module(file)) for file in extra_files),
    ]:
        try:
            rules = rules_of(load())
            for each in rules:
                if each.rule_id in taken:
                    raise ValueError(f"rule {each.rule_id!r} is already provided by {taken[each.rule_id]}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found.append(Loaded(name, origin, error=_trace(error)))
            continue
        taken |= {each.rule_id: origin for each in rules}
        found.append(Loaded(name, origin, rules))
    return tuple(found)


def rules_of(module: object) -> tuple[Rule, ...]:
    """Rules a module defines (or the one Rule an entry point names). Raises ValueError if there is none."""
    if isinstance(module, Rule):
        return (module,)
    rules = tuple(value for value in vars(module).values() if isinstance(value, Rule))
    if not rules:
        raise ValueError(f"{getattr(module, '__name__', module)} defines no rule: use @rule('its-id')")
    return rules


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pertoken_rule_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).strip()
