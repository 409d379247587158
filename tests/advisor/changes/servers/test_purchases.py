"""Commands that buy and return hardware."""

import pytest

from pertoken.advisor.changes.servers import commit, order, release
from pertoken.state.deployment import Commitment, Placement
from pertoken.testing import fleet

P5 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")


def test_a_commitment_names_count_price_and_term_and_cannot_be_undone() -> None:
    step = commit(Commitment("aws", "us-east-1", "p5.48xlarge", 2, 30_500_000_000, None, years=1))
    assert step.apply[0] == "Commit to 2 × p5.48xlarge at aws us-east-1 for $30.50 per instance and hour, for 1 year."
    assert step.undo == ("A commitment cannot be cancelled before it ends.",)


def test_an_instance_is_ordered_in_its_region() -> None:
    (command,) = order(P5)
    assert "p5.48xlarge" in command and "us-east-1" in command


@pytest.mark.parametrize("placement", [Placement(), Placement("aws", "us-east-1", "p5.48xlarge", purchase="reserved")])
def test_hardware_that_is_not_rented_by_the_hour_has_no_command(placement: Placement) -> None:
    assert order(placement) == ()


def test_a_host_known_only_by_its_name_is_drained_and_ordered_again() -> None:
    step = release("gpu-1", None, fleet())
    assert step.retire == (
        "Drain gpu-1.",
        "Check that no process uses the devices of gpu-1.",
        "Give gpu-1 back.",
    )
    assert step.undo == ("Order gpu-1 again.",)
