"""Labels of metrics."""

from pertoken.metrics import SERIES, label_of
from pertoken.metrics.series import Gauge


def test_a_metric_without_a_label_is_shown_by_its_name_in_words() -> None:
    assert label_of("no_such_metric") == "no such metric"


def test_metrics_of_devices_and_engines_have_labels() -> None:
    assert (label_of("sm_active_1e4"), label_of("awake")) == ("SM active", "awake")


def test_every_evidence_series_has_a_label_of_its_own() -> None:
    labels = {name: label_of(name) for name in SERIES}
    assert not [name for name, label in labels.items() if "_" in name and label == name.replace("_", " ")]
    assert len(set(labels.values())) == len(labels)


def test_a_series_that_is_taken_while_busy_has_that_in_its_label() -> None:
    while_busy = [name for name, spec in SERIES.items() if "while busy" in spec.meaning]
    assert {"running", "kv_use", "mfu", "mbu"} == set(while_busy)
    assert all("while busy" in label_of(name) for name in while_busy)
    computations = {name: spec.computation for name, spec in SERIES.items()}
    gauges = {name for name, how in computations.items() if isinstance(how, Gauge) and how.while_busy}
    assert gauges and gauges <= set(while_busy)
