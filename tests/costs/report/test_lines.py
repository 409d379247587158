"""Lines and values that are computed on first access."""

from pertoken.costs.report.lines import Later


def test_values_are_computed_once_and_only_if_somebody_reads_them() -> None:
    calls = []

    def values() -> tuple[int, ...]:
        calls.append(1)
        return (3, 1, 2)

    later = Later(values)
    assert calls == []
    assert (len(later), later[0], later[1:], list(later)) == (3, 3, (1, 2), [3, 1, 2])
    assert calls == [1]
    assert later == (3, 1, 2) and later == (3, 1, 2) and later != (3, 1)
