from pertoken.catalog.owned import terms


def test_each_default_is_within_its_range_and_has_a_usual_one_and_a_meaning() -> None:
    for name, term in terms().items():
        assert term.low <= term.value <= term.high and term.usual and term.meaning, name
