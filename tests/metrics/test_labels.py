"""Labels of metrics."""

from pertoken.metrics import SERIES, label_of


def test_a_metric_without_a_label_is_shown_by_its_name_in_words() -> None:
    assert label_of("no_such_metric") == "no such metric"


def test_metrics_of_devices_and_engines_have_labels() -> None:
    assert (label_of("sm_active_1e4"), label_of("kv_use")) == ("SM active", "KV cache in use")


def test_every_evidence_series_has_a_label_of_its_own() -> None:
    labels = {name: label_of(name) for name in SERIES}
    assert not [name for name, label in labels.items() if "_" in name and label == name.replace("_", " ")]
    assert len(set(labels.values())) == len(labels)
