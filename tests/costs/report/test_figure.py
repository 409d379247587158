"""Numbers that may be unknown."""

from pertoken.costs.report.lines import Figure, per


def test_a_quotient_is_unknown_for_the_reason_of_its_unknown_part_or_where_it_divides_by_nothing() -> None:
    assert per(Figure(6), Figure(3), "none") == Figure(2)
    assert per(Figure(6), Figure(0), "none") == Figure(None, "none")
    assert per(Figure(None, "first"), Figure(None, "second"), "none") == Figure(None, "first")
    assert per(Figure(6), Figure(None, "second"), "none") == Figure(None, "second")
