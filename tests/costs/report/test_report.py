"""Report of a seeded fleet, compared with figures computed by hand."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.readings import Endpoint, EngineReading
from pertoken.agent.rows.assemble import Readings
from pertoken.agent.scrape import parse
from pertoken.costs.ledger import together
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import DeploymentLine
from pertoken.provenance import Provenance
from pertoken.store import repository
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
)
from pertoken.store.write.writer import Writer
from pertoken.text.summary import summary
from pertoken.units import NANO_USD, SHARE
from pertoken.window.figures import counted_ms, observed_share
from tests.agent.engine_pages import read_page
from tests.agent.rows.ticks import run
from tests.agent.values import START_MS, engine, gpu, probe
from tests.scenario import HEALTHY_70B, LOW_BATCH_70B, seed
from tests.values import HOST, new_store, set_price, tick

END = 1_790_000_040 // 3600 * 3600 + 1800
HOURS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=60 * HOURS, end_ts=END)
    return folder


def price(*lines: DeploymentLine) -> int | None:
    return together(line.served for line in lines).price("blended")


def test_dollars_per_mtok_are_all_dollars_of_its_devices_over_all_its_tokens(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    report = fleet_report(open_store(locate(str(folder))), 3600 * HOURS, END)
    (line,) = report.deployments
    dollars = 2 * 6.88 * HOURS
    tokens = (40 + 160) * 3600 * HOURS
    assert line.nano_usd == pytest.approx(dollars * NANO_USD, rel=1e-8)
    assert line.nano_usd_per_mtok == pytest.approx(dollars / tokens * 1e6 * NANO_USD, rel=1e-9)
    assert line.nano_usd_per_generated_mtok == pytest.approx(dollars / (40 * 3600 * HOURS) * 1e6 * NANO_USD, rel=1e-9)
    assert line.busy == pytest.approx(0.6)
    assert line.running_now == pytest.approx(2.0, abs=0.1)
    assert line.coverage == 1.0
    assert line.generated_tok_s_now == pytest.approx(40)
    assert line.prompt_tok_s_now == pytest.approx(160)
    assert line.nano_usd_per_hour == 2 * 6.88 * NANO_USD
    assert [report.nano_usd_per_mtok, *(use.nano_usd_per_mtok for use in report.uses)] == [line.nano_usd_per_mtok] * 2
    assert 0.02 <= (line.tpot_p50_s or 0) <= 0.03
    assert line.power_w == pytest.approx(660)


def test_a_deployment_with_unknown_tokens_adds_neither_dollars_nor_tokens_to_the_headline(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    report = fleet_report(open_store(locate(str(folder))), 3600 * HOURS, END)
    (line,) = report.deployments
    unknown = replace(line, prompt_tokens=None)
    idle = replace(line, prompt_tokens=0, generated_tokens=0)
    assert report.nano_usd_per_mtok == line.nano_usd_per_mtok
    assert price(line, unknown) == line.nano_usd_per_mtok
    assert price(line, idle) == pytest.approx(2 * (line.nano_usd_per_mtok or 0), abs=1)
    assert price(unknown) is None
    assert price(idle) is None


def test_prompt_tokens_of_encoders_are_the_headline_only_where_nothing_generates(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    (line,) = fleet_report(open_store(locate(str(folder))), 3600 * HOURS, END).deployments
    encoder = replace(line, generated_tokens=0, pooling=True)
    assert encoder.prompt_tokens and encoder.nano_usd
    assert price(line, encoder) == line.nano_usd_per_mtok
    assert price(encoder) == pytest.approx(encoder.nano_usd * 1e6 / encoder.prompt_tokens)


def test_the_bill_adds_up_to_the_paid_dollars(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    bill = fleet_report(open_store(locate(str(folder))), 3600 * HOURS, END).bill
    assert bill is not None
    assert (
        bill.paid
        == bill.busy + bill.idle + bill.other + bill.unallocated
        == pytest.approx(4 * 6.88 * HOURS * NANO_USD, rel=1e-8)
    )
    assert bill.unallocated == pytest.approx(2 * 6.88 * HOURS * NANO_USD, rel=1e-8)
    assert bill.busy == pytest.approx(0.6 * 2 * 6.88 * HOURS * NANO_USD, rel=1e-8)


def test_a_price_that_changes_within_the_window_divides_dollars_and_nothing_else(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=4, usd_per_hour=2.0, minutes=60 * 3, end_ts=END)
    before = fleet_report(open_store(where), 3600 * 3, END)
    with AdviceRepository(where).writing() as connection:
        dearer = {"nano_usd_per_device_hour": 5 * NANO_USD, "from_ts": END - 1200, "set_ts": END}
        repository.add_price(connection, selector="H100", set_by="x", note=None, **dearer)
    after = fleet_report(open_store(where), 3600 * 3, END)
    (line,), (alone,) = after.deployments, before.deployments
    dollars = 2 * (2.0 * 160 + 5.0 * 20) / 60
    assert line.nano_usd == pytest.approx(dollars * NANO_USD, rel=1e-8)
    assert after.bill is not None and after.bill.paid == pytest.approx(2 * dollars * NANO_USD, rel=1e-8)
    for known in ("generated_tokens", "prompt_tokens", "busy", "coverage", "tpot_p50_s", "spark"):
        assert getattr(line, known) == getattr(alone, known), known


def test_without_a_price_there_are_no_dollars_and_a_hint_how_to_set_it(tmp_path: Path) -> None:
    where = seed(tmp_path, HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END)
    report = fleet_report(open_store(where), 3600, END)
    assert (report.bill, report.nano_usd_per_mtok, report.deployments[0].nano_usd) == (None, None, None)
    assert any("pertoken prices set" in hint for hint in report.hints)


def test_a_host_that_stopped_reporting_has_no_now(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    report = fleet_report(open_store(locate(str(folder))), 3600, END + 600)
    assert (report.generated_tok_s_now, report.power_w) == (None, None)
    assert report.deployments[0].generated_tok_s_now == pytest.approx(40)
    assert any("has stored nothing for 10m" in hint for hint in report.hints)


def test_data_that_slide_out_of_the_window_go_without_an_error(tmp_path: Path) -> None:
    device = DeviceRow(5, HOST, "gpu", "GPU-5", "nvidia", "NVIDIA H100 80GB HBM3")
    where = new_store(tmp_path)
    with Writer(where) as writer:
        for n in range(1, 6):  # that the device is there is noted once; its rows go on
            row = DeviceSample(5, END + 10 * n, 10_000, 10_000)
            writer.commit(tick(END + 10 * n, row, devices=(device,)))
        writer.roll_up()
    for later in range(3550, 3750, 5):
        fleet_report(open_store(where), 3600, END + later)


def test_a_deployment_that_ended_in_the_first_minute_of_a_window_carries_what_it_held_of_it(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    rows: dict[str, Any] = {
        "devices": (DeviceRow(5, HOST, "gpu", "GPU-5", "nvidia", "NVIDIA H100 80GB HBM3"),),
        "engines": (EngineRow(2, HOST, "vllm", "http://127.0.0.1:8000", 8000, 1, 1, None, "process"),),
        "deployments": (DeploymentRow(1, 2, HOST, "m"),),
        "epochs": (EpochRow(11, 1, END, END + 30, None, "{}", (5,)),),
    }
    with Writer(where) as writer:
        for ts in range(END + 10, END + 70, 10):
            served: tuple[object, ...] = (
                DeploymentSample(11, ts, 10_000, 10_000, True, busy_ms=4_000),
                DeviceShare(5, 11, ts, 10_000, SHARE, 4_000, Provenance.REPORTED),
            )
            writer.commit(tick(ts, DeviceSample(5, ts, 10_000, 10_000), *(served if ts <= END + 30 else ()), **rows))
        writer.roll_up()
    with AdviceRepository(where).writing() as connection:
        hour = {"nano_usd_per_device_hour": 60 * NANO_USD, "from_ts": 0, "set_ts": 1}
        repository.add_price(connection, selector="H100", set_by="x", note=None, **hour)
    bill = fleet_report(open_store(where), 3600, END + 3600 + 45).bill
    assert bill is not None
    assert (bill.paid, bill.busy, bill.idle) == (NANO_USD, NANO_USD * 2 // 10, NANO_USD * 3 // 10)


def test_time_before_the_window_is_left_out_and_gaps_in_the_spark_stay_gaps(folder: Path) -> None:
    from pertoken.store.connect.location import locate

    report = fleet_report(open_store(locate(str(folder))), 24 * 3600, END)
    (line,) = report.deployments
    assert line.generated_tokens == 40 * 3600 * HOURS
    assert line.spark[0] is None
    assert line.spark[-1] == pytest.approx(40)


def test_the_bill_states_the_observed_share_of_the_window(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=120, end_ts=END)
    whole = fleet_report(open_store(where), 3600, END)
    assert (whole.bill_observed, whole.coverage, whole.deployments[0].coverage) == (1.0, 1.0, 1.0)
    # The agent dies: dollars of its last minutes stay, and the window goes on without it.
    half = fleet_report(open_store(where), 3600, END + 1800)
    assert half.bill is not None and half.bill.paid == pytest.approx(6.88e9)
    assert half.bill_observed == half.coverage == half.deployments[0].coverage == pytest.approx(0.5)
    assert "Paid $6.88 in 1h, 50% observed: busy" in summary(half, ())
    assert "$/Mtok, 50% of 1h" in summary(half, ()) and "model" in summary(half, ())
    none = fleet_report(open_store(where), 3600, END + 3600 + 60)
    assert (none.bill, none.bill_observed) == (None, 0.0)
    assert "Paid in 1h: not known, because nothing was recorded." in summary(none, ())


def test_rounding_of_starts_and_ticks_is_no_gap() -> None:
    assert observed_share(counted_ms(59_001, 60_000), 60_000) == 1.0
    assert observed_share(counted_ms(59_000, 60_000), 60_000) == pytest.approx(59 / 60)
    assert counted_ms(70_000, 60_000) == 60_000


def test_devices_that_came_within_the_window_are_expected_since_then(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=90, end_ts=END)
    seed(where, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=15, end_ts=END, host="late")
    assert fleet_report(open_store(where), 3600, END).bill_observed == 1.0
    # The first host stops: 45 of 60 minutes were observed of it, and all of 29 since the other was first there.
    seed(where, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=15, end_ts=END + 900, host="late")
    assert fleet_report(open_store(where), 3600, END + 900).bill_observed == pytest.approx((45 + 29) / (60 + 29))


def test_devices_without_a_price_do_not_count_in_the_observed_share_of_the_bill(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=90, end_ts=END)
    assert fleet_report(open_store(where), 3600, END).bill_observed is None
    set_price(where, "GPU-0", NANO_USD)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        other = "(SELECT device_id FROM device WHERE uuid = 'GPU-1')"
        connection.execute(f"DELETE FROM device_1m WHERE device_id = {other}")
        connection.commit()
    assert fleet_report(open_store(where), 3600, END).bill_observed == 1.0


def test_dollars_an_hour_now_are_those_of_hosts_that_report(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    seed(where, LOW_BATCH_70B, gpus=4, usd_per_hour=None, minutes=30, end_ts=END - 600, host="silent")
    report = fleet_report(open_store(where), 3600, END)
    assert report.nano_usd_per_hour == 2 * 6.88 * NANO_USD
    text = summary(report, ())
    assert "$13.76  $/hour, 1 host\n" in text and "watts, 1 of 2 hosts" in text
    later = fleet_report(open_store(where), 3600, END + 600)
    assert (later.nano_usd_per_hour, later.unpriced_n) == (None, 0)
    assert "$/hour: no reports" in summary(later, ())


def test_hosts_their_devices_and_deployments_are_in_the_order_of_the_numbers_in_their_names(tmp_path: Path) -> None:
    names = ("host-10", "Host-9", "host-2")
    for name in names:
        seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=3, end_ts=1_800_000_000, host=name)
    report = fleet_report(open_store(locate(str(tmp_path))), 3600, 1_800_000_000)
    ordered = ["host-2", "Host-9", "host-10"]
    assert [line.name for line in report.hosts] == ordered
    assert [line.host for line in report.devices] == [name for name in ordered for _ in range(2)]
    assert [line.slot for line in report.devices] == [0, 1] * 3
    assert [line.host for line in report.deployments] == ordered


def test_prompts_transferred_from_a_prefill_to_a_decode_server_count_once(tmp_path: Path) -> None:
    """4.0 M prompt tokens are prefilled on one server, 3.0 M of them computed, and all are sent to another."""
    adapter = ADAPTERS["vllm"]
    page = """vllm:prompt_tokens_total{{model_name="m"}} {prompt}
vllm:prompt_tokens_cached_total{{model_name="m"}} {cached}
vllm:prompt_tokens_by_source_total{{model_name="m",source="external_kv_transfer"}} {transferred}
vllm:prompt_tokens_cached_by_source_total{{model_name="m",source="p2p"}} {transferred}
vllm:generation_tokens_total{{model_name="m"}} {generated}
"""

    def server(n: int, **counts: int) -> EngineReading:
        counters = read_page(adapter, parse(page.format(**counts).encode(), adapter.wanted)).counters
        endpoint = Endpoint("vllm", f"http://127.0.0.1:{8000 + n}", "process", 8000 + n, 100 + n, START_MS, (100 + n,))
        return engine(0, endpoint=endpoint, counters=counters)

    def readings(prompt: int) -> Readings:
        prefill = server(0, prompt=prompt, cached=prompt // 4, transferred=0, generated=prompt // 1000)
        decode = server(1, prompt=prompt, cached=prompt, transferred=prompt, generated=prompt // 10)
        return Readings(probe(gpu(0, 100), gpu(1, 101)), (prefill, decode))

    where = new_store(tmp_path)
    set_price(where, "NVIDIA H100 80GB HBM3", 2 * NANO_USD)
    ticks = run(*(readings(prompt) for prompt in (0, 1_000_000, 4_000_000)))
    with Writer(where) as writer:
        for recorded_tick in ticks:
            writer.commit(recorded_tick)
        writer.roll_up()
    report = fleet_report(open_store(where), 3600, ticks[-1].ts)
    by_generated = sorted(report.deployments, key=lambda line: line.generated_tokens or 0)
    assert [line.prompt_tokens for line in by_generated] == [4_000_000, 0]
    assert [line.cached_tokens for line in by_generated] == [1_000_000, 0]
    assert [dict(line.counts.counted).get("transferred_tokens") for line in by_generated] == [None, 4_000_000]
    dollars = sum(line.nano_usd or 0 for line in by_generated)
    assert dollars > 0
    assert report.nano_usd_per_mtok == pytest.approx(dollars / 4.404, rel=1e-6)
