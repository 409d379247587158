import numpy as np
import pytest

from pertoken.forecast.efficiency import (
    attenuation,
    deviation,
    efficiency,
    half_width,
    table,
    tag_names,
    tag_row,
    transfer,
)
from pertoken.forecast.terms import TERMS


def test_the_table_says_what_it_was_fitted_on() -> None:
    fit = table()["fit"]
    assert fit["source"] and fit["as_of"] and fit["rows"] > 1000 and fit["pairs"] > 1000


def test_every_term_has_a_constant_and_only_known_tags_adjust_it() -> None:
    assert set(table()["terms"]) == set(TERMS)
    assert all(set(row.get("by", {})) <= set(tag_names()) for row in table()["terms"].values())
    assert np.isfinite(efficiency().base).all() and np.isfinite(efficiency().by_tag).all()


def test_tags_of_a_candidate_add_up() -> None:
    plain, quantized = (efficiency().log_scale(np.array([tag_row(held)])) for held in ((), ("int4", "ampere")))
    places = [tag_names().index(each) for each in ("int4", "ampere")]
    assert quantized - plain == pytest.approx(efficiency().by_tag[places].sum(axis=0)[None])


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="astrology"):
        tag_row(["astrology"])


def test_errors_of_two_kinds_add_in_quadrature_and_none_is_below_the_noise() -> None:
    one, other = (half_width([kind], 0.1) for kind in ("tp_change", "quantize_fp8"))
    assert half_width(["tp_change", "quantize_fp8"], 0.1) == pytest.approx(np.hypot(one, other))
    assert half_width([], 0.1) == 0
    assert half_width(["tp_change"], 0.0) == table()["error"]["tp_change"]["floor"]
    assert half_width(["astrology"], 0.0) == table()["error"]["other"]["floor"] > 0.5


def test_a_change_of_two_kinds_keeps_no_more_of_what_was_learned_than_either() -> None:
    both = transfer(["quantize_fp8", "smaller_model"])
    assert (both <= transfer(["quantize_fp8"])).all() and (both <= transfer(["smaller_model"])).all()
    assert (transfer([]) == 1).all() and both.shape == (len(deviation().names),)


def test_kinds_that_few_deployments_were_measured_on_are_shrunk_as_others_were_and_no_narrower_than_a_judgement() -> (
    None
):
    slopes, judged = table()["attenuation"], table()["error"]["other"]["floor"]
    measured = [slope for kind, slope in slopes.items() if kind != "other"]
    assert attenuation(["astrology"]) == slopes["other"] == pytest.approx(np.mean(measured), abs=0.006)
    assert attenuation(["astrology", "tp_change"]) == max(slopes["other"], slopes["tp_change"])
    few = [row for row in table()["error"].values() if row.get("clusters", 9) < 3]
    assert few and all(row["floor"] >= judged for row in few)


def test_the_measured_errors_say_on_how_many_pairs() -> None:
    rows = {kind: row for kind, row in table()["error"].items() if kind not in ("absolute", "other")}
    assert len(rows) >= 9
    assert all(row["n"] >= row["clusters"] >= 1 and row["per_sd"] > 0 for row in rows.values())
