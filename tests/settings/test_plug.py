"""Sources of power and the carbon of a grid, as a person writes them."""

import pytest

from pertoken.settings.fleet import GridCarbon, PlugSource, read_grid, read_plug_sources
from pertoken.settings.values import plug_sources


def test_each_kind_of_source_has_what_it_needs() -> None:
    texts = [
        "ipmi",
        "redfish https://bmc/redfish/v1/Chassis/1/Power",
        'prometheus http://p:9090/x sum(w{h="$host"}) + 1',
    ]
    assert read_plug_sources(texts) == (
        PlugSource("ipmi"),
        PlugSource("redfish", "https://bmc/redfish/v1/Chassis/1/Power"),
        PlugSource("prometheus", "http://p:9090/x", 'sum(w{h="$host"}) + 1'),
    )


@pytest.mark.parametrize(
    "text", ["", "snmp http://pdu", "ipmi now", "redfish", "redfish http://bmc a", "prometheus http://p", "redfish bmc"]
)
def test_a_source_that_lacks_something_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        plug_sources([text])


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError) as error:
        plug_sources(["redfish https://root:calvin@bmc/redfish/v1"])
    assert "calvin" not in str(error.value)


def test_an_intensity_has_its_source_and_its_date() -> None:
    text = "363 g/kWh, Ember, for Germany in 2024, 2025-01-23"
    assert read_grid(text) == GridCarbon(363.0, "Ember, for Germany in 2024", "2025-01-23")


@pytest.mark.parametrize(
    "value", ["363", "363 g/kWh", "363 g/kWh, Ember", "363 g/kWh, Ember, 2025-13-01", 363, "-1 g/kWh, a, 2025-01-01"]
)
def test_an_intensity_without_source_or_date_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        read_grid(value)
