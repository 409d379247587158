import re
from functools import partial
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.costs.fleet import objectives
from pertoken.costs.report.figures import ModelFigures, figures_of
from pertoken.reports.exporters.price_maps import price_map, unknown
from tests.reports.builders import END, HOURS, store_of
from tests.scenario import LOW_BATCH_70B


def figures(folder: Path, usd_per_hour: float | None = 6.88) -> tuple[ModelFigures, ...]:
    slo_of = partial(objectives, settings=Settings())
    return figures_of(store_of(folder, usd_per_hour), HOURS + 1, END, slo_of, dated=True)


def test_both_maps_hold_the_measured_price_of_a_token(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db")
    price = measured[0].usd_per_mtok.value
    assert price is not None
    litellm = price_map("litellm", measured, "2026-11-23T01:00:00Z")[LOW_BATCH_70B.model]
    assert litellm["input_cost_per_token"] == litellm["output_cost_per_token"] == pytest.approx(price / 1e6, rel=1e-5)
    assert litellm["metadata"]["as_of"] == "2026-11-23T01:00:00Z"
    (langfuse,) = price_map("langfuse", measured, "2026-11-23T01:00:00Z")
    assert langfuse["inputPrice"] == litellm["input_cost_per_token"]
    assert re.fullmatch(langfuse["matchPattern"].removeprefix("(?i)"), LOW_BATCH_70B.model)
    assert not re.fullmatch(langfuse["matchPattern"].removeprefix("(?i)"), LOW_BATCH_70B.model.replace(".", "x"))


def test_a_model_without_a_price_is_left_out_and_named(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db", None)
    assert price_map("litellm", measured, "") == {} and price_map("langfuse", measured, "") == []
    assert unknown(measured) == [f"{LOW_BATCH_70B.model}: a device it held has no price"]
