"""Price maps of other tools: prices by kind of token, in their formats."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pertoken.config import Settings
from pertoken.costs.fleet import objectives
from pertoken.costs.report.figures import ModelFigures, figures_of
from pertoken.reports.exporters import price_map, unknown
from pertoken.store.connect.open import open_store
from tests.reports.builders import END, HOURS, store_of
from tests.scenario import LOW_BATCH_70B, seed


def figures(folder: Path, usd_per_hour: float | None = 6.88) -> tuple[ModelFigures, ...]:
    slo_of = partial(objectives, settings=Settings())
    return figures_of(store_of(folder, usd_per_hour), HOURS + 1, END, slo_of, dated=True)


def mapped(kind: str, measured: tuple[ModelFigures, ...], as_of: str) -> Any:
    return json.loads(json.dumps(price_map(kind, measured, as_of)))


def test_both_maps_hold_the_measured_price_of_a_token(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db")
    price = measured[0].usd_per_mtok.value
    assert price is not None
    litellm = mapped("litellm", measured, "2026-11-23T01:00:00Z")[LOW_BATCH_70B.model]
    assert litellm["input_cost_per_token"] == litellm["output_cost_per_token"] == pytest.approx(price / 1e6, rel=1e-5)
    assert litellm["metadata"]["as_of"] == "2026-11-23T01:00:00Z"
    (langfuse,) = mapped("langfuse", measured, "2026-11-23T01:00:00Z")
    assert langfuse["inputPrice"] == litellm["input_cost_per_token"]
    assert re.fullmatch(langfuse["matchPattern"].removeprefix("(?i)"), LOW_BATCH_70B.model)
    assert not re.fullmatch(langfuse["matchPattern"].removeprefix("(?i)"), LOW_BATCH_70B.model.replace(".", "x"))


def test_kinds_of_tokens_have_prices_that_sum_to_the_dollars_of_the_ledger(tmp_path: Path) -> None:
    serving = replace(LOW_BATCH_70B, prefill=0.25, cached=0.75)
    where = seed(tmp_path, serving, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    measured = figures_of(open_store(where), 2, END, partial(objectives, settings=Settings()))
    litellm = mapped("litellm", measured, "2026-11-23T01:00:00Z")[LOW_BATCH_70B.model]
    prompt, generated = 160 * 3600, 40 * 3600
    names = ("input_cost_per_token", "cache_read_input_token_cost", "output_cost_per_token")
    tokens = (prompt / 4, prompt * 3 / 4, generated)
    assert sum(litellm[name] * n for name, n in zip(names, tokens, strict=True)) == pytest.approx(2 * 6.88, rel=1e-5)
    assert litellm["output_cost_per_token"] == pytest.approx(0.75 * 2 * 6.88 / generated, rel=1e-5)
    (langfuse,) = mapped("langfuse", measured, "2026-11-23T01:00:00Z")
    (tier,) = langfuse["pricingTiers"]
    assert (tier["isDefault"], tier["priority"], tier["conditions"]) == (True, 0, [])
    assert tier["prices"] == {
        "input": litellm["input_cost_per_token"],
        "input_cached_tokens": litellm["cache_read_input_token_cost"],
        "input_cache_read": litellm["cache_read_input_token_cost"],
        "output": litellm["output_cost_per_token"],
    }
    assert "inputPrice" not in langfuse


def test_a_model_without_cached_tokens_has_no_price_of_them(tmp_path: Path) -> None:
    where = seed(tmp_path, replace(LOW_BATCH_70B, prefill=0.25), gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    measured = figures_of(open_store(where), 2, END, partial(objectives, settings=Settings()))
    litellm = mapped("litellm", measured, "")[LOW_BATCH_70B.model]
    assert "cache_read_input_token_cost" not in litellm
    assert litellm["input_cost_per_token"] == pytest.approx(0.25 * 2 * 6.88 / (160 * 3600), rel=1e-5)
    (langfuse,) = mapped("langfuse", measured, "")
    assert langfuse["outputPrice"] == litellm["output_cost_per_token"] and "pricingTiers" not in langfuse


def test_a_model_without_a_price_is_left_out_and_named(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db", None)
    assert mapped("litellm", measured, "") == {} and mapped("langfuse", measured, "") == []
    assert unknown(measured) == [f"{LOW_BATCH_70B.model}: a device it held has no price"]
