"""Tables of exporters agree with the table of device metrics."""

from pertoken.agent.history.prometheus import EXPORTERS
from pertoken.metrics import DEVICE


def test_each_exporter_maps_onto_values_that_a_device_reading_has() -> None:
    known = {metric.reading for metric in DEVICE}
    for exporter in EXPORTERS.values():
        readings = [one.reading for one in exporter.series]
        assert set(readings) <= known
        assert len(set(readings)) == len(readings)
        assert {one.names[0] for one in exporter.series} <= set(exporter.names)
