"""Advice over seeded databases, through the command line: what must come, in which order, and what must not."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pertoken.advisor.advise import _words
from pertoken.cli import main
from tests.advisor.rules import source
from tests.scenario import HEALTHY_70B, LOW_BATCH_70B, seed

NOW = int(time.time()) // 60 * 60
BUILT_IN = {
    "move-accelerator",
    "quantize-weights",
    "raise-batch-limit",
    "release-idle-device",
    "route-to-smaller-model",
    "use-spot",
}


def advise(folder: Path, *options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["advise", "--db", str(folder), "--json", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["recommendations"]
    return found


@pytest.fixture(scope="module")
def low_batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two H100s serve a 70B in BF16 to two requests at a time; their two twins are idle."""
    folder = tmp_path_factory.mktemp("low-batch")
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=24 * 60, end_ts=NOW)
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    seed(folder, HEALTHY_70B, gpus=2, usd_per_hour=2.29, minutes=24 * 60, end_ts=NOW)
    return folder


def test_idle_twins_are_released_first_then_weights_quantized_to_fewer_devices(low_batch: Path) -> None:
    found = [each for each in advise(low_batch) if each["state"] == "OPEN"]
    likely = {(each["rule_id"], str(each["changes"])): (each["bankable"] or [0, 0, 0])[1] for each in found}
    order = [rule for rule, _ in sorted(likely, key=lambda key: -likely[key])]
    month = 6.88 * 730
    released = next(each for each in found if each["rule_id"] == "release-idle-device")
    assert released["bankable"][1] == pytest.approx(2 * month * 1e9, rel=1e-6)
    fewer = next(each for each in found if each["rule_id"] == "quantize-weights" and each["changes"].get("tp"))
    assert fewer["changes"] == {"tp": ["2", "1"], "weight_dtype": ["bf16", "fp8"]}
    assert fewer["bankable"][1] == pytest.approx(month * 1e9, rel=1e-6)
    assert order.index("release-idle-device") < order.index("quantize-weights")
    assert {"release-idle-device", "quantize-weights", "move-accelerator"} <= set(order)
    assert any("--quantization fp8" in command for command in fewer["commands"])
    assert any("remove --quantization" in command for command in fewer["undo"])


def test_a_title_begins_with_what_changes_most_and_says_it_in_few_words(low_batch: Path) -> None:
    titles = {each["rule_id"]: each["title"] for each in advise(low_batch) if each["state"] == "OPEN"}
    assert titles["quantize-weights"].startswith("weights bf16 → ")
    assert titles["move-accelerator"].startswith("H100 SXM5 → ")
    assert titles["route-to-smaller-model"].startswith("Llama-3.3-70B → Llama-3.1-8B")
    said = _words({"tp": ("2", "1"), "enforce_eager": ("True", "False"), "kv_dtype": ("bf16", "fp8")})
    assert said == ["KV cache bf16 → fp8", "tp 2 → 1", "enforce_eager off"]


def test_a_faster_model_on_a_half_idle_fleet_banks_nothing(low_batch: Path) -> None:
    same_devices = [
        each
        for each in advise(low_batch)
        if each["rule_id"] == "quantize-weights" and each["state"] == "OPEN" and "tp" not in each["changes"]
    ]
    assert same_devices
    for each in same_devices:
        assert (each["bankable"] or [0, 0, 0]) == [0, 0, 0]
        assert each["capacity"][1] > 0
        assert each["throughput_ratio"][0] < each["throughput_ratio"][1] < each["throughput_ratio"][2]


def test_a_change_shows_what_requests_would_see_before_and_after(low_batch: Path) -> None:
    for each in advise(low_batch):
        if each["rule_id"] != "quantize-weights" or each["state"] != "OPEN":
            continue
        assert [line["figure"] for line in each["latency"]] == ["TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95"]
        for line in each["latency"]:
            assert line["before"][0] < line["before"][1] < line["before"][2]
            assert line["after"][0] < line["after"][1] < line["after"][2]
            assert line["provenance"] == "forecast" and line["measured_ms"] > 0
        assert each["latency_unknown"] is None
        assert each["replicas"][1] <= each["replicas"][0]


def test_no_saving_exceeds_what_is_paid(low_batch: Path) -> None:
    paid = 4 * 6.88 * 730 * 1e9
    for each in advise(low_batch):
        for money in (each["bankable"], each["capacity"]):
            assert money is None or max(money) <= paid


def test_every_recommendation_carries_the_evidence_its_rule_read(low_batch: Path) -> None:
    for each in advise(low_batch):
        if each["state"] == "OPEN":
            assert each["evidence"], each["rule_id"]
            assert each["provenance"]


def test_a_healthy_host_gets_nothing_bankable_and_a_reason_for_each_rule(healthy: Path) -> None:
    found = advise(healthy)
    assert {each["rule_id"] for each in found} == BUILT_IN
    bankable = [each for each in found if each["state"] == "OPEN" and each["bankable"] and each["bankable"][1] > 0]
    assert bankable == []
    for each in found:
        assert each["state"] == "OPEN" or each["reason"], each["rule_id"]


def test_without_a_price_levers_are_shown_and_not_priced(tmp_path: Path) -> None:
    seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=None, minutes=24 * 60, end_ts=NOW)
    found = [each for each in advise(tmp_path) if each["state"] == "OPEN"]
    assert found
    for each in found:
        assert (each["bankable"], each["capacity"]) == (None, None)
    assert any("prices set" in (each["unpriced"] or "") for each in found)


@pytest.mark.parametrize(
    ("body", "before", "says"),
    [
        ("raise SystemExit(3)\nyield", "", "SystemExit: 3"),
        ("yield 42", "", "a rule yields a Deployment, a Fleet or skip"),
        ("yield now", "", "it proposed the present"),
        ("yield now.but(colour='red')", "", "'colour' is not a knob"),
        ("while True:\n    pass\nyield", "", "took longer than 0.3 s"),
        ("yield skip('x')", "import no_such_module", "No module named 'no_such_module'"),
        ("while True:\n    yield now.but(max_num_seqs=7)", "", "more than 1000 proposals"),
    ],
)
def test_a_rule_that_breaks_is_a_row_and_stops_nothing_else(
    low_batch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, before: str, says: str
) -> None:
    monkeypatch.setenv("PERTOKEN_ADVISOR_RULE_TIMEOUT", "300ms")
    file = tmp_path / "broken.py"
    file.write_text(source(body, before=before))
    found = advise(low_batch, "--rule", str(file))
    (failed,) = [each for each in found if each["state"] == "FAILED"]
    assert says in failed["reason"]
    assert {each["rule_id"] for each in found} >= BUILT_IN


def test_a_rule_that_reads_what_was_not_measured_is_blocked_with_the_remedy(low_batch: Path, tmp_path: Path) -> None:
    file = tmp_path / "needs.py"
    file.write_text(source("if seen.e2e_s.p50 > 1:\n    yield now.but(tp=4)"))
    (blocked,) = [each for each in advise(low_batch, "--rule", str(file)) if each["rule_id"] == "own-rule"]
    assert (blocked["state"], blocked["reason"]) == ("BLOCKED", "e2e_s was not measured")
    assert "latency histograms" in blocked["remedy"]
    assert blocked["evidence"][0]["missing"]


def test_a_rule_of_ones_own_is_priced_like_any_other(low_batch: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(source("if seen.running.p95 < 8:\n    yield now.but(weight_dtype='fp8', tp=1)"))
    (own,) = [each for each in advise(low_batch, "--rule", str(file)) if each["rule_id"] == "own-rule"]
    assert own["state"] == "OPEN"
    assert own["bankable"][1] > 0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A stranger's distribution with a rule by entry point, on the path as pip would leave it."""
    (tmp_path / "their_rules.py").write_text(source("yield skip('nothing here')", rule_id="their-rule"))
    info = tmp_path / "their_rules-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text("[pertoken.rules]\ntheir = their_rules\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "their-rule"
    sys.modules.pop("their_rules", None)


def test_a_rule_enters_by_the_entry_point(low_batch: Path, installed: str) -> None:
    (own,) = [each for each in advise(low_batch) if each["rule_id"] == installed]
    assert (own["state"], own["reason"]) == ("REFUSED", "nothing here")


def test_advice_no_longer_found_expires_and_its_moves_are_kept(tmp_path: Path) -> None:
    from sqlalchemy import select

    from pertoken.advisor.book import standing
    from pertoken.store import advice
    from pertoken.store.open import open_store

    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    file = tmp_path / "own.py"
    file.write_text(source("yield now.but(max_model_len=4096)"))
    first = {each["recommendation_id"] for each in advise(tmp_path, "--rule", str(file))}
    advise(tmp_path)
    store = open_store(where)
    now = {each.recommendation_id for each in standing(store)}
    (gone,) = first - now
    with store.read("advice") as connection:
        moves = connection.execute(
            select(advice.recommendation_event.c.to_state)
            .where(advice.recommendation_event.c.recommendation_id == gone)
            .order_by(advice.recommendation_event.c.version)
        ).scalars()
        assert list(moves)[-1] == "EXPIRED"


def test_kernel_tables_are_heard_where_a_setting_names_them(
    low_batch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "python"
    tables.write_text(
        f"#!{sys.executable}\nimport json, sys\nfor line in sys.stdin:\n"
        "    tok_s = 201 if 'h200' in json.loads(line)['system'] else 67\n"
        "    print(json.dumps({'tok_s': tok_s}), flush=True)\n"
    )
    tables.chmod(0o700)
    h200 = {"accelerator": ["H100 SXM5", "H200 SXM"]}
    alone = next(each for each in advise(low_batch) if each["changes"] == h200)
    monkeypatch.setenv("PERTOKEN_ADVISOR_KERNEL_TABLES", str(tables))
    found = advise(low_batch)
    heard = next(each for each in found if each["changes"] == h200)
    assert any("kernel tables say 3×" in each for each in heard["assumptions"])
    assert alone["throughput_ratio"][1] < heard["throughput_ratio"][1] < 3
    assert any("no second opinion" in line for each in found for line in each["assumptions"])
    monkeypatch.setenv("PERTOKEN_ADVISOR_KERNEL_TABLES", str(tmp_path / "nowhere"))
    done = CliRunner().invoke(main, ["advise", "--db", str(low_batch)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and "there is no such file" in done.stderr
