from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.text.costs import hours_sheet


def test_an_hour_that_was_observed_in_part_shows_how_much_of_it() -> None:
    hours = (ModelHour(10**9, 500, 3_600_000, 3_600_000), ModelHour(10**9, 500, 1_790_000, 3_600_000), None)
    lines = [line[1] for line in hours_sheet(ModelHours("m", 0, hours))[0].lines if not isinstance(line, str)]
    assert [line.partition("$1.00")[2] for line in lines[1:]] == [", 49% observed", ""]
