from pertoken.state.demand import times, to
from tests.savings.fleets import (
    ONE,
    chat,
    priced,
)


def test_a_changed_demand_yields_a_break_even_and_no_dollars() -> None:
    found = priced(ONE, chat(ONE).serving(response_cache_share=to(0.3)))
    assert found.bankable is None and found.capacity is None
    assert found.break_even is not None and "frees 30% of its busy time" in found.break_even
    assert found.unpriced is not None and "a proposal, not a measurement" in found.unpriced
    unknown = priced(ONE, chat(ONE).serving(requests_per_s=times(0.5)))
    assert unknown.break_even is not None and "frees 50% of its busy time" in unknown.break_even
