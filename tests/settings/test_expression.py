import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.settings.alerts import FLEET, FigureLimit, FigureScope, read_comparison, read_scope


def test_a_comparison_is_read_with_its_scope_operator_and_limit() -> None:
    assert read_comparison("usd_per_mtok > 2.5") == FigureLimit("usd_per_mtok", ">", 2.5)
    assert read_comparison(" idle_share[service=chat]>=40% ") == FigureLimit(
        "idle_share", ">=", 0.4, FigureScope("service", "chat")
    )
    assert str(read_comparison("stale_s[host=*] > 60")) == "stale_s[host=*] > 60"
    assert [read_comparison(f"usd {op} 1").holds(1.0) for op in (">", ">=", "<", "<=")] == [False, True, False, True]


@pytest.mark.parametrize(
    "text", ["", "usd", "usd > ", "usd = 1", "1 > usd", "__import__('os') > 1", "usd > 1; x", None]
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must compare a figure"):
        read_comparison(text)


@given(st.text())
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    try:
        read_comparison(text)
        read_scope(text)
    except ValueError:
        pass


def test_a_scope_is_the_fleet_or_names_a_target() -> None:
    assert read_scope("fleet") == FLEET and read_scope("host=*").covers("gpu-1")
    assert not read_scope("service=chat").covers("code")
    for wrong in ("fleet=x", "service", "pod=x", 3):
        with pytest.raises(ValueError, match="must be fleet"):
            read_scope(wrong)


def test_a_figure_may_be_of_an_owner() -> None:
    comparison = read_comparison("usd[label:team=search] > 5")
    assert comparison.scope == FigureScope("label:team", "search") and str(comparison) == "usd[label:team=search] > 5"
    assert read_comparison("budget_share[namespace=*] > 80%").scope == FigureScope("namespace", "*")
    with pytest.raises(ValueError, match="label:NAME"):
        read_comparison("usd[team=search] > 5")
