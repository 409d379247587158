"""Each rule in each typical situation, and no two rules that pull at one thing from both ends."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from pertoken.rule import FEWEST, WEIGHT_BYTES, Proposal, Rule, Service, propose, rule
from pertoken.state.deployment import knobs
from pertoken.testing import Proposed, Regime, regimes, run
from tests.plugins.matrix import FOLDER, Cell, cell_of, read, recorded
from tests.testing.test_conformity import BUILT_IN

RULES = {rule.rule_id: rule for rule in BUILT_IN}


def test_every_built_in_rule_has_a_line_for_every_situation_and_no_other_file_is_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(RULES)
    assert {name: list(read(name)) for name in RULES} == {name: list(regimes()) for name in RULES}


def test_every_rule_has_triggers_and_hard_stops_that_are_written_by_hand() -> None:
    for name in RULES:
        kinds = {cell.kind for cell in read(name).values() if cell.by_hand}
        assert "proposes" in kinds and kinds - {"proposes"}, name


@pytest.mark.parametrize("rule", BUILT_IN, ids=list(RULES))
def test_a_rule_yields_in_each_situation_what_its_file_states(rule: Rule) -> None:
    observed = {name: cell_of(run(rule, name)) for name in regimes()}
    written = read(rule.rule_id)
    differing = {
        name: (written[name].text, observed[name].text) for name in observed if not written[name].agrees(observed[name])
    }
    assert not differing


def test_cells_by_hand_are_never_recorded() -> None:
    by_hand = {name: Cell("silent", by_hand=True) for name in regimes()}
    assert recorded(RULES["batch-limit"], by_hand) == by_hand
    assert recorded(RULES["batch-limit"], {"idle": Cell("silent")})["idle"] == Cell("refuses", ("below-limit",))


# -- contradictions --------------------------------------------------------------------------------------------

RANKS = ("tp", "pp", "dp", "ep")
Moved = tuple[str, object, int]
"""What a proposal moves (field, whose), and to which side: +1 or -1."""


def _size(field: str, value: object) -> float | None:
    """Return a value of a knob or count as a number that can rise and fall; None for what has no order."""
    if isinstance(value, bool | int | float):
        return float(value)
    if field in ("weight_dtype", "kv_dtype") and isinstance(value, str):
        return WEIGHT_BYTES.get(value)
    return None


def moves(proposed: Proposed, regime: Regime) -> Iterator[Moved]:
    """Yield what a proposal moves up or down. Hosts fall when they are released, and rise where something moves in.

    Ranks of a deployment that moves to another accelerator count other devices, so that they are not compared.
    """
    moved = {change.target for change in proposed.diff.changes if change.field == "placement.accelerator"}
    for change in proposed.diff.changes:
        if change.field in RANKS and change.target in moved:
            continue
        before = change.before
        if change.field == "replicas" and before is None:
            before = len(regime.fleet.service(str(change.target)).deployments)
        if change.field not in (*knobs(), "replicas") or FEWEST in (before, change.after):
            continue
        low, high = _size(change.field, before), _size(change.field, change.after)
        if low is not None and high is not None and low != high:
            yield change.field, change.target, 1 if high > low else -1
    yield from (("host", host.host_id, -1) for host in proposed.diff.released)
    used = {device for change in proposed.diff.changes if change.field == "device_ids" for device in change.after}
    used |= {device for added in proposed.diff.added for device in added.device_ids}
    yield from (("host", regime.fleet.device(device).host_id, 1) for device in sorted(used))


def contradictions(rules: list[Rule], regime: Regime) -> list[str]:
    """Return the pairs of proposals of different rules that move one thing to opposite sides."""
    proposed_by = [(rule.rule_id, proposed) for rule in rules for proposed in run(rule, regime).proposals]
    pulls: dict[tuple[str, object], list[tuple[str, Proposed, int]]] = {}
    for rule_id, proposed in proposed_by:
        for field, target, side in moves(proposed, regime):
            pulls.setdefault((field, target), []).append((rule_id, proposed, side))
    return [
        f"{one} and {other}: {field} of {target}"
        for (field, target), sides in pulls.items()
        for (one, first, up), (other, second, down) in combinations(sides, 2)
        if one != other and up != down and other not in first.excludes and one not in second.excludes
    ]


@pytest.mark.parametrize("name", regimes())
def test_rules_that_move_one_field_in_opposite_directions_exclude_one_another(name: str) -> None:
    assert contradictions(BUILT_IN, regimes()[name]) == []


PAGE = """{title}

## Why it saves
...
## When it is wrong
...
## How to apply
...
## Sources
...
"""


def resizing(rule_id: str, limit: int, excludes: tuple[str, ...] = ()) -> Rule:
    def resize(service: Service) -> Iterator[Proposal]:
        yield propose(service.but(max_num_seqs=limit).scaled_to(limit), excludes=excludes)

    resize.__doc__ = PAGE.format(title=rule_id)
    return rule(rule_id)(resize)


def test_a_limit_that_one_rule_raises_and_another_lowers_is_a_contradiction_unless_excluded() -> None:
    saturated = regimes()["saturated"]
    up, down = resizing("more", 128), resizing("less", 1)
    clashes = contradictions([up, down], saturated)
    assert clashes == [
        f"more and less: {what}" for what in ("replicas of chat", "max_num_seqs of 1", "max_num_seqs of 2")
    ]
    assert contradictions([resizing("more", 128, excludes=("less",)), down], saturated) == []
    assert contradictions([up, resizing("even-more", 256)], saturated) == []
