"""The shape of a model."""

from dataclasses import replace
from typing import Any

import pytest

from tests.deployments import model


@pytest.mark.parametrize("field", ["params_total", "params_active", "n_layers", "n_kv_heads", "head_dim"])
def test_bytes_per_token_can_be_computed_only_of_a_whole_shape(field: str) -> None:
    whole = model("Qwen3-8B")
    assert whole.known
    missing: dict[str, Any] = {field: None}
    assert not replace(whole, **missing).known
