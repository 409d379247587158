"""Case studies: what a person of the case would see of the product."""

from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.errors import BadInput
from pertoken.savings.estimate import Estimate
from pertoken.savings.size import known_model
from pertoken.state.service import Service
from tests.savings.fleets import fleet_of, host, llama, priced


def test_a_model_that_transcribes_is_refused_instead_of_sized() -> None:
    with pytest.raises(BadInput, match="not in the catalog of models"):
        known_model("openai/whisper-large-v3", load_market())


def test_isolated_clients_keep_the_host_that_sharing_an_engine_would_release() -> None:
    """No client shares an engine with another one, so that a merge is refused with its reason."""

    def merged(**fields: Any) -> Estimate:
        groups = [
            Service(name, (llama(number, (10 * number, 10 * number + 1), name),), **fields)
            for number, name in enumerate("ab", 1)
        ]
        fleet = fleet_of(groups, [host(1), host(2)])
        first, second = (fleet.deployment(number) for number in (1, 2))
        return priced(fleet, fleet.merge((first, second), first).release(2))

    shared, apart = merged(), merged(isolation="tenant")
    assert shared.released == ("gpu-2",) and shared.net is not None and shared.net[1] > 0
    assert apart.net is None and 'isolation = "tenant"' in (apart.infeasible or "")
