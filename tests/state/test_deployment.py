"""Refusals of edits of a deployment, and the fields that they leave alone."""

from typing import Any

import pytest

from pertoken.state.deployment import InvalidEdit, Placement
from tests.state.fleets import NOW


def test_a_move_keeps_what_it_does_not_name_and_drops_the_instance_with_its_accelerator() -> None:
    spot = NOW.on(Placement(purchase="spot")).placement
    assert (spot.accelerator, spot.instance_type, spot.purchase) == ("H100 SXM5", "p5.48xlarge", "spot")
    moved = NOW.on(Placement(accelerator="H200 SXM")).placement
    assert (moved.provider, moved.instance_type, moved.devices_per_instance) == ("aws", None, None)
    assert NOW.on(Placement(purchase="spot")).device_ids == ()


@pytest.mark.parametrize("numbers", [(0, 1, 2), (2, 1, 3), (1, 2, float("inf")), ("1", 2, 3)])
def test_an_expectation_has_rising_finite_ratios(numbers: tuple[Any, Any, Any]) -> None:
    with pytest.raises(InvalidEdit):
        NOW.expecting(*numbers, source="a paper")
