from pertoken.catalog.engine_lines import engine_lines
from pertoken.catalog.market import load_market


def test_an_engine_that_is_no_longer_developed_names_its_successors_and_source() -> None:
    line = load_market().engine_line("tgi")
    assert line is not None and (line.status, line.successors) == ("maintenance", ("vllm", "sglang"))
    assert load_market().engine_line("vllm") is None


def test_every_line_has_a_source_and_a_date_and_its_successors_are_developed() -> None:
    for name, line in engine_lines().items():
        assert line.engine == name and line.source and line.as_of and line.status in ("maintenance", "archived")
        assert line.successors and not set(line.successors) & set(engine_lines())
