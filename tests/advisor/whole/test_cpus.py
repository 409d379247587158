"""CPUs of a kind of instance that was probed are a destination: end to end, from recorded telemetry to the plan."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pertoken.advisor.present import present
from pertoken.advisor.probed import keep
from pertoken.catalog.market import load_market
from pertoken.catalog.offers import Origin
from pertoken.cli import main
from pertoken.evidence import OperatingPoint
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import Tick
from pertoken.store.write.writer import Writer
from tests.advisor.builders import NOW
from tests.scenario import LOW_BATCH_70B, Serving, seed, ticks
from tests.values import new_store

RARE_8B = Serving(
    model="meta-llama/Llama-3.1-8B-Instruct",
    knobs={**LOW_BATCH_70B.knobs, "tp": 1},
    devices=1,
    running=0.05,
    waiting=0.0,
    kv_use=0.01,
    busy=0.03,
    generated_tok_s=2.0,
    prompt_tok_s=8.0,
    tpot_s=0.009,
    ttft_s=0.05,
    util=0.03,
    power_w=120.0,
)
"""One request a minute: 480 tokens, and an output of 120."""
ON_CPUS = replace(
    RARE_8B,
    model="Qwen/Qwen2.5-0.5B-Instruct",
    knobs={"weight_dtype": "int8", "max_num_seqs": 4},
    tpot_s=0.02,
    ttft_s=0.4,
)
MINUTES = 60


def cpu_host(instance_type: str) -> Iterator[Tick]:
    """Yield the ticks of a host without accelerators, on which llama.cpp serves."""
    place = ("aws", instance_type, "us-east-1", "on_demand")
    for tick in ticks(ON_CPUS, 1, MINUTES, NOW, f"cpu-{instance_type}", place):
        yield replace(
            tick,
            host=replace(tick.host, memory_bytes=32 * 2**30),
            devices=tuple(
                replace(
                    device, kind="cpu", vendor="arm", name="Neoverse-V2", slot=None, memory_bytes=None,
                    power_limit_mw=None,
                )
                for device in tick.devices
            ),
            engines=tuple(replace(engine, kind="llama.cpp") for engine in tick.engines),
        )  # fmt: skip


def fleet(folder: Path, *, probed: bool = True) -> Path:
    """Record a 70B on two H100 of eight, a rare 8B on an H100 of its own, and a 0.5B on CPUs."""
    where = seed(folder, RARE_8B, gpus=1, usd_per_hour=None, minutes=MINUTES, end_ts=NOW, host="gpu-small",
        instance=("aws", "p5.4xlarge", "us-east-1", "on_demand"))  # fmt: skip
    seed(folder, LOW_BATCH_70B, gpus=8, usd_per_hour=None, minutes=MINUTES, end_ts=NOW, host="gpu-large",
        instance=("aws", "p5.48xlarge", "us-east-1", "on_demand"))  # fmt: skip
    deployment_id = record(where, "c8g.4xlarge")
    if probed:
        probe(where, deployment_id)
    return folder


def record(where: StoreLocation, instance_type: str) -> int:
    """Record a host of CPUs; return the id of its deployment."""
    recorded = list(cpu_host(instance_type))
    with Writer(where) as writer:
        for tick in recorded:
            writer.commit(tick)
        writer.roll_up()
    return recorded[0].deployments[0].deployment_id


def probe(where: StoreLocation, deployment_id: int, times: float = 1.0) -> None:
    """Store what `pertoken probe` measures of a 0.5B in 8 bits on CPUs of 1 TFLOP/s that read 100 GB/s, or a multiple
    of it.
    """
    prompt_s, row_s = 2 * 0.494e9 / 1e12 / times, 2 * 0.494e9 / 4e11 / times
    reading_s = 0.494e9 * 8.3 / 8 / 1e11 / times
    points = [
        *(OperatingPoint(NOW - 900, 1.0, None, n, 1.0, ttft_s=n * prompt_s, probed=True) for n in (128.0, 384.0)),
        *(
            OperatingPoint(NOW - 800, n, reading_s + n * row_s, 16.0, 24.0, cached_share=1.0, probed=True)
            for n in (1.0, 2.0)
        ),
    ]
    keep(where, deployment_id, NOW - 900, NOW - 700, "http://10.0.0.9:8000", "someone", points, {})


SMALL, LARGE = RARE_8B.model, LOW_BATCH_70B.model


def asked(command: str, folder: Path, tpot_ms: float) -> dict[str, Any]:
    """Return what a command prints where tokens of every service may take this long."""
    (folder / "pertoken.toml").write_text(f"[slo]\ntpot_ms = {tpot_ms:g}\n")
    done = CliRunner().invoke(main, [command, "--db", str(folder), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    read: dict[str, Any] = json.loads(done.stdout)
    return read


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet(tmp_path_factory.mktemp("probed"))


def test_the_best_plan_keeps_the_large_model_on_gpus_and_moves_the_rare_patient_one_to_cpus(probed: Path) -> None:
    """The 8B: p5.4xlarge at $6.88 less c8g.4xlarge at $0.63808, 730 hours; a g6.xlarge (L4) would be $0.8048."""
    plan = asked("plan", probed, tpot_ms=400)
    steps = {step["where"]: step for step in plan["steps"]}
    assert set(steps) == {SMALL, LARGE}
    assert "Neoverse" not in steps[LARGE]["what"] and steps[LARGE]["bankable_usd_per_month"]["likely"] > 0
    small = steps[SMALL]
    assert small["what"].startswith(
        "H100 SXM5 → Neoverse-V2 (c8g.4xlarge), weights bf16 → int8, engine vllm → llama.cpp"
    )
    assert small["what"].endswith("1 × c8g.4xlarge at aws us-east-1")
    assert small["bankable_usd_per_month"]["likely"] == pytest.approx((6.88 - 0.63808) * 730, abs=0.01)
    assert small["bankable_usd_per_month"]["low"] < (6.88 - 2 * 0.63808) * 730, "two at the slow end of the forecast"
    assert small["slo"] == "pass" and small["released"] == ["gpu-small"] and small["effort"] == "days"
    order, start = small["commands"][:2]
    assert "run-instances --region us-east-1 --instance-type c8g.4xlarge --count 1" in order
    assert "with llama.cpp, with --parallel 8" in start and "GGUF file of the model with int8 weights" in start


def test_cpus_that_would_miss_the_objective_are_refused_with_both_figures(probed: Path) -> None:
    refused = refusals(asked("advise", probed, tpot_ms=40))
    assert re.search(
        r"Neoverse-V2 \(c8g.4xlarge\), weights bf16 → int8, .*TPOT p95 would be about .*ms \(10 ms now\), with an SLO "
        r"of 40 ms",
        refused,
    )


def test_cpus_that_nobody_probed_are_refused_with_the_command_that_makes_them_known(tmp_path: Path) -> None:
    rows = asked("advise", fleet(tmp_path, probed=False), tpot_ms=400)
    assert "m8g.2xlarge rents for 5.2% of what it costs" in refusals(rows), "16 GiB of a c7g.2xlarge are too few"
    assert "run `pertoken probe` there" in refusals(rows)
    assert "→ Neoverse" not in json.dumps(rows["recommendations"], ensure_ascii=False)


def refusals(advice: dict[str, Any]) -> str:
    """Return why moves of the small model are refused."""
    (row,) = [
        row for row in advice["recommendations"] if row["rule_id"] == "move-accelerator" and row["target"] == SMALL
    ]
    return "\n".join(refusal["reason"] for refusal in row["refusals"])


def test_instances_of_two_sizes_that_report_one_name_keep_their_own_rates_and_prices(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    for instance_type, times in (("c8g.4xlarge", 1.0), ("c8g.8xlarge", 2.0)):
        probe(where, record(where, instance_type), times)
    market = present(open_store(where), load_market(), 3600, NOW).context.market
    rates = {device.name: device.measured["llama.cpp", "int8"].memory_bytes_per_s for device in market.measured}
    assert rates["Neoverse-V2 (c8g.8xlarge)"] == pytest.approx(2 * rates["Neoverse-V2 (c8g.4xlarge)"])
    prices = {name: [offer.nano_usd_per_hour / 1e9 for offer in market.offers(name)] for name in rates}
    assert prices == {"Neoverse-V2 (c8g.4xlarge)": [0.63808], "Neoverse-V2 (c8g.8xlarge)": [1.27616]}


@pytest.mark.parametrize(("instance_type", "selector"), [("c9g.4xlarge", "cpu"), ("c8g.4xlarge", "Neoverse")])
def test_a_price_set_for_a_probed_host_is_that_of_another_one_of_its_kind(
    instance_type: str, selector: str, tmp_path: Path
) -> None:
    where = new_store(tmp_path)
    probe(where, record(where, instance_type))
    price = {"nano_usd_per_device_hour": 500_000_000, "from_ts": NOW - 7200, "set_ts": NOW - 7200, "note": None}
    with AdviceRepository(where).writing() as connection:
        repository.add_price(connection, selector=selector, set_by="someone", **price)
    market = present(open_store(where), load_market(), 3600, NOW).context.market
    (offer, *listed) = sorted(market.offers(f"Neoverse-V2 ({instance_type})"), key=lambda offer: offer.source)[::-1]
    assert (offer.instance_type, offer.region, offer.nano_usd_per_hour) == (instance_type, "us-east-1", 500_000_000)
    assert offer.origin is Origin.SET and offer.source == f"the price that is set of cpu-{instance_type}"
    assert len(listed) <= 1


def test_an_owned_host_is_no_destination(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    recorded = [replace(tick, host=replace(tick.host, purchase="owned")) for tick in cpu_host("c9g.4xlarge")]
    with Writer(where) as writer:
        for tick in recorded:
            writer.commit(tick)
        writer.roll_up()
    probe(where, recorded[0].deployments[0].deployment_id)
    market = present(open_store(where), load_market(), 3600, NOW).context.market
    assert [device.name for device in market.measured] == ["Neoverse-V2 (c9g.4xlarge)"]
    assert market.offers("Neoverse-V2 (c9g.4xlarge)") == ()
