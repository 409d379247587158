"""Every series has a source, and a missing metric has the remedy of the series that is made of it."""

from pertoken.metrics import SERIES
from pertoken.store.schema.rows import UnreadableMetric
from pertoken.window.evidence import FROM_HISTOGRAMS, OF_DEPLOYMENTS, OF_DEVICES, remedies


def test_every_series_is_of_a_deployment_or_of_a_device() -> None:
    assert {*OF_DEPLOYMENTS, *FROM_HISTOGRAMS, *OF_DEVICES, "observed_h"} == set(SERIES)
    assert not {*OF_DEPLOYMENTS} & {*FROM_HISTOGRAMS, "held", "observed_h"}


def test_a_missing_metric_is_the_remedy_of_its_series() -> None:
    gaps = [
        UnreadableMetric(5, "processes", "missing", "/proc is hidden", "run as root", 0),
        UnreadableMetric(5, "power_mw", "missing", "the driver has none", None, 0),
        UnreadableMetric(5, "no series", "missing", "-", "-", 0),
    ]
    assert remedies(gaps) == {"held": "/proc is hidden; run as root", "power_w": "the driver has none"}
