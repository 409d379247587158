"""Columns of advice, its order and its totals."""

from collections.abc import Iterable

from pertoken.advisor.recommendation import Recommendation, State, Variant
from pertoken.printable import natural_key
from pertoken.tui.text.columns import Column
from pertoken.tui.text.words import literal, literal_lines, ratio_range, slo_verdict, usd_range

Money = tuple[int, int, int]
NOT_EVALUATED = (State.FAILED, State.BLOCKED, State.REFUSED)
"""States without a proposal, most surprising first."""
_UNPRICED = "not priced"


def open_advice(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """What is proposed now: largest bankable first, then largest capacity, then the unpriced."""

    def worth(each: Recommendation) -> tuple[int, int]:
        return (_likely(bankable(each)) or 0, _likely(capacity(each)) or 0)

    return sorted((each for each in advice if each.state is State.OPEN), key=worth, reverse=True)


def not_evaluated(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Rules without a proposal, each with its reason: broken ones first, then blocked, then those that refused."""
    found = [each for each in advice if each.state in NOT_EVALUATED]
    return sorted(found, key=lambda each: (NOT_EVALUATED.index(each.state), each.rule_id, natural_key(each.target)))


def bankable(each: Recommendation) -> Money | None:
    """Return what the best variant takes off the bill."""
    return each.best.bankable if each.best else None


def capacity(each: Recommendation) -> Money | None:
    """Return what the best variant lets the same bill serve."""
    return each.best.capacity if each.best else None


def alternative(variant: Variant) -> str:
    """Return a variant in one line: `weights bf16 → int4: bankable $900 to $1,700`."""
    monies = (("bankable", variant.bankable), ("capacity", variant.capacity))
    worth = ", ".join(f"{name} {usd_range(money)}" for name, money in monies if money is not None)
    return f"{literal(variant.title)}: {worth or _UNPRICED}"


def best_of_each_target(advice: Iterable[Recommendation]) -> list[Recommendation]:
    """Return what is open, best first, without what touches a service or host that a better one touches already.

    Two changes of one target may exclude each other, so that only one of them counts in a total.
    """
    touched: set[object] = set()
    kept = []
    for each in open_advice(advice):
        here = set(each.best.touches if each.best and each.best.touches else (f"{each.target_kind}:{each.target_key}",))
        if not here & touched:
            touched |= here
            kept.append(each)
    return kept


def total(monies: Iterable[Money | None]) -> Money | None:
    """Sum of (low, likely, high) nano-USD per month over what is known; None where nothing is."""
    known = [money for money in monies if money is not None]
    if not known:
        return None
    low, likely, high = (sum(column) for column in zip(*known, strict=True))
    return low, likely, high


def _reason(each: Recommendation) -> str:
    """One line of it; the last of an error, which names it."""
    lines = [line for line in literal_lines(each.reason or "") if line.strip()]
    return lines[-1 if each.state is State.FAILED else 0] if lines else ""


def _money(each: Recommendation, money: Money | None) -> str:
    return _UNPRICED if money is None and each.best and each.best.unpriced else usd_range(money)


def _likely(money: Money | None) -> int | None:
    return None if money is None else money[1]


def _ratio(each: Recommendation) -> tuple[float, float, float] | None:
    return each.best.throughput_ratio if each.best else None


def _middle(each: Recommendation) -> float | None:
    ratio = _ratio(each)
    return None if ratio is None else ratio[1]


OPEN_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("change", lambda each: literal(each.title), 0, least=16),
    Column("rule", lambda each: literal(each.rule_id), 6, least=10),
    Column("bankable $/month", lambda each: _money(each, bankable(each)), 1, lambda each: _likely(bankable(each))),
    Column("capacity $/month", lambda each: _money(each, capacity(each)), 2, lambda each: _likely(capacity(each))),
    Column("target", lambda each: literal(each.target), 3, least=10, keep_end=True),
    Column("SLO", lambda each: slo_verdict(each.best.slo if each.best else "unknown"), 4),
    Column("throughput", lambda each: ratio_range(_ratio(each)), 5, _middle),
)
NOT_EVALUATED_COLUMNS: tuple[Column[Recommendation], ...] = (
    Column("rule", lambda each: literal(each.rule_id), 1, least=16),
    Column("state", lambda each: each.state.lower(), 2),
    Column("reason", _reason, 0, least=30),
    Column("remedy", lambda each: literal_lines(each.remedy or "")[0], 4, least=16),
    Column("target", lambda each: literal(each.target), 3, least=10, keep_end=True),
)
