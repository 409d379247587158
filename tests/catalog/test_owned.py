import pytest

from pertoken.catalog.instances import node_power, terms
from pertoken.catalog.offers import toml_table


def test_each_default_is_within_its_range_and_has_a_usual_one_and_a_meaning() -> None:
    for name, term in terms().items():
        assert term.low <= term.value <= term.high and term.usual and term.meaning, name


@pytest.mark.parametrize(("accelerator_kw", "plug_kw"), [(1.6, 3.83), (3.2, 5.59), (5.6, 8.21)])
def test_the_model_of_a_server_s_power_is_the_line_through_its_source(accelerator_kw: float, plug_kw: float) -> None:
    assert node_power().watts(1000 * accelerator_kw, 5600) == pytest.approx(1000 * plug_kw, rel=0.005)


def test_the_model_is_near_what_was_measured_at_the_plug() -> None:
    for row in toml_table("owned.toml")["node"]["measured"]:
        modelled_kw = node_power().watts(row["accelerator_kw"], row["power_limit_kw"])
        assert modelled_kw == pytest.approx(row["plug_kw"], rel=0.05), row["server"]
