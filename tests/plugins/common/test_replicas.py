"""`alike`: what must not differ among replicas that a rule changes together."""

from typing import Any

import pytest

from pertoken.plugins.common import alike
from pertoken.rule import Service
from pertoken.testing import deployment


def _service(**second: Any) -> Service:
    first = deployment(tp=2)
    return Service("chat", (first, first.but(**second)))


def test_equal_replicas_are_alike() -> None:
    assert alike(_service())
    assert alike(Service("chat"))


@pytest.mark.parametrize("second", [{"tp": 1}, {"weight_dtype": "fp8"}, {"role": "decode"}, {"pp": 2}, {"dp": 2}])
def test_replicas_with_other_ranks_weights_or_role_are_not(second: dict[str, Any]) -> None:
    assert not alike(_service(**second))


def test_other_knobs_count_where_they_are_named() -> None:
    service = _service(ep=2, max_num_seqs=64)
    assert alike(service)
    assert not alike(service, "ep")
