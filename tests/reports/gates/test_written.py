import pytest

from pertoken.errors import BadInput
from pertoken.reports.gates import read_gates


def test_a_gate_of_an_unknown_figure_or_kind_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(BadInput, match=r"no figure is named usd_per_mtoks; did you mean usd_per_mtok\?"):
        read_gates(["usd_per_mtoks > 1"])
    with pytest.raises(BadInput, match="stale_s has values for fleet, host, not for a service"):
        read_gates(["stale_s[service=chat] > 1"])
    with pytest.raises(BadInput, match="--fail-on 'usd >': must compare"):
        read_gates(["usd >"])
    assert len(read_gates(["usd > 1", "tokens < 1"])) == 2
