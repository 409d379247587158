"""Present values that a proposal set again, from the message of a worker."""

import pytest

from pertoken.advisor.changes.title import present_values
from pertoken.advisor.proposals import encoded
from tests.advisor.builders import FLEET

SERVICE = FLEET.services[0]
NOW = SERVICE.deployments[0]


def test_an_edit_to_the_present_value_gives_that_value_with_its_label() -> None:
    limited = FLEET.edit(NOW.but(max_num_seqs=256, power_cap_w=450))
    now = limited.deployment(NOW.deployment_id)
    sent = encoded(now.but(power_cap_w=450, max_num_seqs=256), limited)
    assert present_values(sent, limited) == ("batch limit 256", "power cap 450 W")


def test_a_service_gives_its_number_of_replicas_and_the_different_values_of_them() -> None:
    n = len(SERVICE.deployments)
    mixed = FLEET.edit(NOW.but(tp=4)).service(SERVICE.name)
    fleet = FLEET.edit(mixed)
    sent = {**encoded(mixed.scaled_to(n), fleet), "edited": ["tp"]}
    assert present_values(sent, fleet) == (f"{n} replicas", f"tp 4 or {SERVICE.deployments[1].tp}")


@pytest.mark.parametrize("edited", [None, 7, {}, [7, None, "no_knob", ["tp"]]])
def test_names_that_are_no_knobs_give_nothing(edited: object) -> None:
    sent = {"deployment": NOW.deployment_id, "set": {}, "edited": edited}
    assert present_values(sent, FLEET) == ()


def test_a_fleet_gives_the_values_of_its_edited_deployments() -> None:
    sent = encoded(FLEET.edit(NOW.but(engine=NOW.engine)), FLEET)
    assert present_values(sent, FLEET) == ("engine vllm",)
