"""Every series has a source, and a missing metric has the remedy of the series that is made of it."""

from types import SimpleNamespace

from pertoken.metrics import SERIES
from pertoken.window.evidence import FROM_HISTOGRAMS, OF_DEPLOYMENTS, OF_DEVICES, remedies


def test_every_series_is_of_a_deployment_or_of_a_device() -> None:
    assert {*OF_DEPLOYMENTS, *FROM_HISTOGRAMS, *OF_DEVICES, "observed_h"} == set(SERIES)
    assert not {*OF_DEPLOYMENTS} & {*FROM_HISTOGRAMS, "held", "observed_h"}


def test_a_missing_metric_is_the_remedy_of_its_series() -> None:
    gaps = [
        SimpleNamespace(metric="processes", reason="/proc is hidden", remedy="run as root"),
        SimpleNamespace(metric="power_mw", reason="the driver has none", remedy=None),
        SimpleNamespace(metric="no series", reason="-", remedy="-"),
    ]
    assert remedies(gaps) == {"held": "/proc is hidden; run as root", "power_w": "the driver has none"}
