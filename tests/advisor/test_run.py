"""Advice over seeded databases, through the command line: what must come, in which order, and what must not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.rules import discovery
from pertoken.advisor.run import rank
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.savings.saving import Saving
from tests.advisor.builders import NOW, advise
from tests.advisor.sources import source
from tests.scenario import HEALTHY_70B, LOW_BATCH_70B, seed

BUILT_IN = {plugin.name for plugin in discovery.installed() if plugin.distribution == "pertoken"}


MONTH = 6.88 * 730
"""Dollars a month of one device."""


def variants(recommendations: list[dict[str, Any]], rule_id: str) -> list[dict[str, Any]]:
    """Return the proposals of a rule, best first."""
    return [variant for row in recommendations if row["rule_id"] == rule_id for variant in row["variants"]]


def fields_of(variant: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {line["field"]: (line["before"], line["after"]) for line in variant["changes"]}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    seed(folder, HEALTHY_70B, gpus=2, usd_per_hour=2.29, minutes=6 * 60, end_ts=NOW)
    return folder


def test_an_idle_host_is_released_and_weights_are_quantized_to_fewer_devices(advice: list[dict[str, Any]]) -> None:
    (released,) = variants(advice, "release-idle")
    assert released["saving"]["net"] == [round(2 * MONTH * 1e9)] * 3
    assert released["title"] == "release gpu-2"
    assert released["commands"] == [
        "Drain gpu-2.",
        "on gpu-2: nvidia-smi --query-compute-apps=pid --format=csv,noheader  # go on only if it prints nothing",
        "Give gpu-2 back with its 2 devices.",
    ]
    assert released["undo"] == ["Order gpu-2 again."]
    quantized = variants(advice, "quantize-weights")
    fewer = next(variant for variant in quantized if fields_of(variant).get("weight_dtype") == ("bf16", "fp8"))
    assert fields_of(fewer) == {"tp": ("2", "1"), "weight_dtype": ("bf16", "fp8")}
    # One device of a host that stays: the bill does not fall, the device is free.
    assert fewer["saving"]["net"] == [0, 0, 0] and fewer["saving"]["capacity"][1] >= round(MONTH * 1e9)
    assert any("--quantization fp8" in command for command in fewer["commands"])
    assert any("remove --quantization" in command for command in fewer["undo"])
    assert (fewer["risk"], fewer["effort"]) == ("quality", "medium")


def test_a_title_begins_with_the_largest_change_and_is_short(advice: list[dict[str, Any]]) -> None:
    titles = {row["rule_id"]: row["title"] for row in advice if row["state"] == "OPEN"}
    assert titles["quantize-weights"].startswith("weights bf16 → ")
    assert titles["move-accelerator"].startswith("H100 SXM5 → ")
    assert titles["smaller-model"].startswith("Llama-3.3-70B → ")


def test_one_row_of_a_rule_and_target_holds_its_variants_best_first(advice: list[dict[str, Any]]) -> None:
    identities = [(row["rule_id"], row["target_kind"], row["target_key"]) for row in advice]
    assert len(set(identities)) == len(identities) == len({row["recommendation_id"] for row in advice})
    moved = variants(advice, "move-accelerator")
    assert 1 < len(moved) <= 3 and len({variant["key"] for variant in moved}) == len(moved)
    likely = [variant["if_confirmed"]["net"][1] for variant in moved]
    assert likely == sorted(likely, reverse=True)
    (row,) = [row for row in advice if row["rule_id"] == "move-accelerator"]
    assert (row["target_kind"], row["target"], row["title"]) == ("service", LOW_BATCH_70B.model, moved[0]["title"])


def test_a_faster_model_on_a_half_idle_fleet_banks_nothing(advice: list[dict[str, Any]]) -> None:
    same_devices = [variant for variant in variants(advice, "quantize-weights") if "tp" not in fields_of(variant)]
    assert same_devices
    for same_device in same_devices:
        assert same_device["saving"]["net"] == [0, 0, 0]
        assert same_device["saving"]["capacity"][1] > 0
        assert (
            same_device["throughput_ratio"][0] < same_device["throughput_ratio"][1] < same_device["throughput_ratio"][2]
        )


def test_a_change_shows_what_requests_would_see_before_and_after(advice: list[dict[str, Any]]) -> None:
    for variant in variants(advice, "quantize-weights"):
        assert [line["figure"] for line in variant["latency"]] == ["TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95"]
        for line in variant["latency"]:
            assert line["before"][0] < line["before"][1] < line["before"][2]
            assert line["after"][0] < line["after"][1] < line["after"][2]
            assert line["provenance"] == "forecast" and line["measured_ms"] > 0
        assert variant["latency_unknown"] is None
        assert variant["replicas_needed"][1] <= variant["replicas_needed"][0]


def test_no_saving_exceeds_the_bill(advice: list[dict[str, Any]]) -> None:
    for variant in (variant for row in advice for variant in row["variants"]):
        for saving in filter(None, (variant["saving"], variant["if_confirmed"])):
            assert max(*saving["net"], *saving["capacity"]) <= 4 * MONTH * 1e9


def test_every_recommendation_carries_the_evidence_its_rule_read(advice: list[dict[str, Any]]) -> None:
    for row in advice:
        if row["state"] == "OPEN":
            assert row["evidence"], row["rule_id"]
            assert all(variant["provenance"] for variant in row["variants"])


def test_a_healthy_host_gets_nothing_bankable_and_a_reason_for_each_rule(healthy: Path) -> None:
    advice = advise(healthy)
    assert {row["rule_id"] for row in advice} == BUILT_IN
    savings = [variant["saving"] for row in advice for variant in row["variants"]]
    assert not [saving for saving in savings if saving and saving["net"][1] > 0]
    for row in advice:
        why = row["remedy"] if row["state"] == "BLOCKED" else row["refusals"]
        assert row["state"] == "OPEN" or (row["reason"] and why), row["rule_id"]


def test_without_a_price_levers_are_shown_and_not_priced(tmp_path: Path) -> None:
    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=NOW)
    unpriced = [variant for row in advise(tmp_path) for variant in row["variants"]]
    assert unpriced
    for variant in unpriced:
        assert (variant["saving"], variant["if_confirmed"]) == (None, None)
    assert any("prices set" in (variant["unpriced"] or "") for variant in unpriced)


BROKEN = [
    ("raise SystemExit(3)\nyield", "", "SystemExit: 3"),
    ("yield 42", "", "a rule yields a Deployment, a Service, a Fleet or skip"),
    ("yield now.but(tp=[1])", "", "tensor-parallel ranks must be a whole number"),
    ("yield skip('no reason given')", "", "missing 1 required positional argument"),
    ("yield now.but(colour='red')", "", "'colour' is not a knob"),
    ("while True:\n    pass\nyield", "", "took longer than 0.3 s"),
    ("yield skip('x', 'y')", "import no_such_module", "No module named 'no_such_module'"),
    ("while True:\n    yield now.but(max_num_seqs=7)", "", "more than 1000 proposals"),
]
"""Body of a rule, what stands before it, and the reason in its row."""


def test_rules_that_break_are_a_row_each_and_stop_nothing_else(
    low_batch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERTOKEN_ADVISOR_RULE_TIMEOUT", "300ms")
    options = []
    for n, (body, before, _) in enumerate(BROKEN):
        file = tmp_path / f"broken-{n}.py"
        file.write_text(source(body, rule_id=f"broken-{n}", before=before))
        options += ["--rule", str(file)]
    advice = advise(low_batch, *options, code=2)
    failed = {row["rule_id"]: row["reason"] for row in advice if row["state"] == "FAILED"}
    assert failed.keys() == {f"broken-{n}" for n in range(len(BROKEN))}
    for n, (_, _, reason) in enumerate(BROKEN):
        assert reason in failed[f"broken-{n}"]
    assert {row["rule_id"] for row in advice} >= BUILT_IN


@pytest.mark.usefixtures("without_built_in_rules")
def test_a_rule_that_reads_an_unmeasured_series_is_blocked_with_the_remedy(low_batch: Path, tmp_path: Path) -> None:
    file = tmp_path / "needs.py"
    file.write_text(source("if seen.e2e_s.p50 > 1:\n    yield now.but(tp=4)"))
    (blocked,) = [row for row in advise(low_batch, "--rule", str(file)) if row["rule_id"] == "own-rule"]
    assert (blocked["state"], blocked["reason"]) == ("BLOCKED", "request latency was not measured")
    assert "latency histograms" in blocked["remedy"]
    assert blocked["evidence"][0]["missing"]


@pytest.mark.usefixtures("without_built_in_rules")
def test_a_rule_of_ones_own_is_priced_like_any_other(low_batch: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(source("if seen.running.p95 < 8:\n    yield now.but(weight_dtype='fp8', tp=1)"))
    (own,) = [row for row in advise(low_batch, "--rule", str(file)) if row["rule_id"] == "own-rule"]
    assert own["state"] == "OPEN"
    assert own["variants"][0]["saving"]["capacity"][1] > 0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A stranger's distribution with a rule by entry point, on the path as pip would leave it."""
    (tmp_path / "their_rules.py").write_text(source("yield skip('nothing', 'nothing here')", rule_id="their-rule"))
    info = tmp_path / "their_rules-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text("[pertoken.rules]\ntheir = their_rules\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "their-rule"
    sys.modules.pop("their_rules", None)


def test_a_rule_enters_by_the_entry_point(low_batch: Path, installed: str) -> None:
    (own,) = [row for row in advise(low_batch) if row["rule_id"] == installed]
    assert (own["state"], own["reason"]) == ("REFUSED", "nothing here")


def test_rows_without_dollars_are_ordered_by_risk_and_then_by_work() -> None:
    def row(rule_id: str, risk: str, effort: str, usd: int | None = None) -> Recommendation:
        saving = None if usd is None else Saving((usd, usd, usd), (usd, usd, usd))
        best = Variant("k", rule_id, risk=risk, effort=effort, saving=saving)
        return Recommendation(1, rule_id, State.OPEN, rule_id, "chat", variants=(best,))

    dear, quality = row("zeta", "quality", "high", 10**9), row("alpha", "quality", "low")
    hard, safe = row("beta", "none", "high"), row("gamma", "none", "medium")
    ordered = sorted([quality, hard, safe, dear], key=rank)
    assert [row.rule_id for row in ordered] == ["zeta", "gamma", "beta", "alpha"]


def test_capacity_that_waits_for_a_person_comes_after_a_safe_test_and_a_lower_bill_before_it() -> None:
    def row(rule_id: str, risk: str, if_confirmed: Saving | None = None) -> Recommendation:
        best = Variant("k", rule_id, risk=risk, if_confirmed=if_confirmed)
        return Recommendation(1, rule_id, State.OPEN, rule_id, "chat", variants=(best,))

    model = row("another-model", "quality", Saving(capacity=(1, 2, 3)))
    larger = row("larger-gain", "quality", Saving(capacity=(4, 5, 6)))
    api, test = row("api", "quality", Saving((1, 2, 3))), row("test", "latency")
    assert sorted([model, larger, test, api], key=rank) == [api, test, larger, model]
