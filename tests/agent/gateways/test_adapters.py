"""Tables of gateways: what they read of a captured page, and of pages written in their words."""

import pytest

from pertoken.agent.gateways import ADAPTERS
from pertoken.config import GATEWAYS
from pertoken.metrics import TENANT_LABELS, TENANT_TOKENS


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_each_gateway_maps_onto_the_tokens_and_labels_of_tenants(adapter: object) -> None:
    own = ADAPTERS[adapter.kind]  # type: ignore[attr-defined]
    names = {counter.name for counter in own.counters}
    assert {"tenant_prompt_tokens", "tenant_generated_tokens"} <= names <= set(TENANT_TOKENS)
    assert set(own.labels) <= set(TENANT_LABELS)
    assert "model" in own.labels


def test_the_settings_know_every_gateway() -> None:
    assert tuple(ADAPTERS) == GATEWAYS
