"""Labels of metrics."""

from pertoken.metrics import label_of


def test_a_metric_without_a_label_is_shown_by_its_name_in_words() -> None:
    assert label_of("no_such_metric") == "no such metric"


def test_metrics_of_devices_and_engines_have_labels() -> None:
    assert (label_of("sm_active_1e4"), label_of("kv_use")) == ("SM active", "KV cache in use")
