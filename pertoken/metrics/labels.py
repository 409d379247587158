"""Names of metrics for people."""

from pertoken.metrics.device import DEVICE
from pertoken.metrics.engine import ENGINE
from pertoken.metrics.series import SERIES


def label_of(name: str) -> str:
    """Return what people call a stored metric or an evidence series; any other name in words."""
    return _LABELS.get(name) or name.replace("_", " ")


_LABELS = (
    {metric.reading: metric.label for metric in DEVICE}
    | {name: metric.label for table in ENGINE for name, metric in table.items()}
    | {name: spec.label for name, spec in SERIES.items()}
)
