import pytest

from pertoken.state.deployment import InvalidEdit, Placement


def test_a_purchase_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="purchase='reserved_1y' is not possible: use one of on_demand, spot"):
        Placement(purchase="reserved_1y")
