from pertoken.costs.hours import ModelHour, ModelHours


def test_tokens_of_hours_without_a_price_are_counted_but_left_out_of_the_quotient() -> None:
    line = ModelHours("m", 0, (None, ModelHour(None, 300), ModelHour(10**9, 500), ModelHour(7, None)))
    assert line.tokens == 800
    assert line.together == ModelHour(10**9, 500)
    assert ModelHours("m", 0, (None, ModelHour(7, None))).tokens is None
