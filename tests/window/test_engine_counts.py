"""Engine counters beside tokens, from samples to a deployment's line and to the evidence of rules."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.evidence import NotMeasured
from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.query import read
from pertoken.store.schema.rows import Capability, EngineCounterSample
from pertoken.store.write.writer import Writer
from pertoken.window.figures import EngineCounts, engine_counts
from tests.scenario import H100, HEALTHY_70B, LOW_BATCH_70B, seed
from tests.values import tick

END = 1_795_046_400
MINUTES = 5
ACCELERATOR = load_market().accelerator(H100)
A_MINUTE = {
    'requests_finished{reason="stop"}': 9,
    'requests_finished{reason="length"}': 3,
    "requests_failed": 2,
    "prefix_queries": 400,
    "prefix_hits": 300,
    "spec_drafts": 100,
    "spec_draft_tokens": 300,
    "spec_accepted_tokens": 150,
    "gflop_per_gpu": 8_904_600,
    "read_mb_per_gpu": 60_000_000,
    "write_mb_per_gpu": 300_000,
}


def counting(folder: Path, counts: dict[str, int]) -> StoreLocation:
    """Return a low batch host whose engine counts this in each minute."""
    where = seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=MINUTES, end_ts=END)
    with open_store(where).read() as connection:
        (epoch,) = read.epochs(connection, 0)
    with Writer(where) as writer:
        for n in range(MINUTES):
            ts = END - 60 * n - 10
            samples = (EngineCounterSample(epoch.epoch_id, metric, ts, delta) for metric, delta in counts.items())
            writer.commit(tick(ts, *samples))
        writer.roll_up()
    return where


def test_a_deployment_line_has_the_counts_of_its_engine(tmp_path: Path) -> None:
    assert ACCELERATOR is not None
    (line,) = fleet_report(open_store(counting(tmp_path, A_MINUTE)), 3600, END).deployments
    busy_s = 60 * LOW_BATCH_70B.busy
    peak = ACCELERATOR.fp16_flops, ACCELERATOR.memory_bytes_per_s
    counts = line.counts
    assert (counts.preemptions, counts.counted, counts.ended) == (
        0,
        (("requests_failed", 10),),
        (("stop", 45), ("length", 15)),
    )
    shares = counts.prefix_hit_rate, counts.spec_acceptance_rate, counts.spec_acceptance_length
    assert shares == (0.75, 0.5, 2.5)
    assert counts.mfu == pytest.approx(A_MINUTE["gflop_per_gpu"] * 1e9 / peak[0] / busy_s)
    assert counts.mbu == pytest.approx(60.3e12 / peak[1] / busy_s)


def test_a_rule_reads_it_by_the_minute(tmp_path: Path) -> None:
    gathered = present(open_store(counting(tmp_path, A_MINUTE)), load_market(), 3600, END)
    (seen,) = gathered.context.deployments.values()
    assert (seen.prefix_hit_rate.mean, seen.prefix_hit_rate.n) == (0.75, MINUTES)
    assert (seen.spec_acceptance_rate.p50, seen.spec_acceptance_length.p95) == (0.5, 2.5)
    assert seen.prefix_hit_rate.provenance == Provenance.COUNTER
    assert 0 < seen.mfu.mean < seen.mbu.mean < 1
    assert seen.mfu.provenance == Provenance.LISTED


def test_counts_missing_from_an_engine_are_unknown_with_a_remedy(tmp_path: Path) -> None:
    store = open_store(seed(tmp_path, HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=MINUTES, end_ts=END))
    assert fleet_report(store, 3600, END).deployments[0].counts == EngineCounts(preemptions=0)
    (seen,) = present(store, load_market(), 3600, END).context.deployments.values()
    with pytest.raises(NotMeasured, match="--enable-mfu-metrics"):
        _ = seen.mfu
    with pytest.raises(NotMeasured, match="speculative"):
        _ = seen.spec_acceptance_length


def counted(
    counts: dict[str, int], busy_ms: int | None = 9, device: str | None = H100, **knobs: object
) -> EngineCounts:
    return engine_counts([counts], None, counts, busy_ms, knobs, [device] if device else [], load_market())


def test_utilization_is_of_one_gpu_of_each_data_parallel_rank() -> None:
    assert ACCELERATOR is not None
    counts = {"gflop_per_gpu": 10**6, "read_mb_per_gpu": 10**6}
    one, two = (counted(counts, 10_000, dp=dp, weight_dtype="bf16") for dp in (1, 2))
    assert one.mfu is not None and two.mfu is not None
    assert one.mfu == pytest.approx(2 * two.mfu)
    assert one.mbu == pytest.approx(1e12 / ACCELERATOR.memory_bytes_per_s / 10)
    fp8 = counted(counts, 10_000, dp=1, weight_dtype="fp8").mfu
    assert fp8 == pytest.approx(one.mfu / 2, rel=0.01)  # its 8-bit peak is twice that of 16 bits


@pytest.mark.parametrize(
    "more",
    [
        {"busy_ms": None, "dp": 1},
        {"busy_ms": 0, "dp": 1},
        {},
        {"device": None, "dp": 1},
        {"device": "unheard of", "dp": 1},
    ],
)
def test_utilization_is_unknown_without_busy_time_ranks_or_a_known_gpu(more: dict[str, Any]) -> None:
    counts = {"gflop_per_gpu": 10**6, "read_mb_per_gpu": 10**6}
    engine_counts = counted(counts, **{"weight_dtype": "bf16", **more})
    assert (engine_counts.mfu, engine_counts.mbu) == (None, None)


def test_utilization_of_flops_needs_the_format_of_the_weights_and_flops() -> None:
    counts = {"gflop_per_gpu": 10**6, "read_mb_per_gpu": 10**6}
    assert counted(counts, dp=1).mfu is None and counted(counts, dp=1).mbu is not None
    assert counted({"prefix_hits": 1}, dp=1, weight_dtype="bf16").mfu is None


@given(drafts=st.integers(1, 10**6), per_draft=st.integers(1, 8), accepted=st.floats(0, 1))
def test_an_acceptance_length_is_between_one_and_a_draft_and_one(drafts: int, per_draft: int, accepted: float) -> None:
    tokens = round(drafts * per_draft * accepted)
    length = counted({"spec_drafts": drafts, "spec_accepted_tokens": tokens}).spec_acceptance_length
    assert length is not None and 1 <= length <= per_draft + 1


def test_tokens_that_are_counted_late_are_not_missing_but_less_certain(tmp_path: Path) -> None:
    where = seed(tmp_path, HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=MINUTES, end_ts=END)
    with open_store(where).read() as connection:
        (epoch,) = read.epochs(connection, 0)
    late = Capability(epoch.engine_id, "generated_tokens", "late", "counted when a request ends")
    with Writer(where) as writer:
        writer.commit(tick(END + 60, capabilities=(late,)))
    report = fleet_report(open_store(where), 3600, END)
    assert report.deployments[0].late == ("generated_tokens",)
    assert not [gap for gap in report.missing if gap.metric == "generated_tokens"]
    (seen,) = present(open_store(where), load_market(), 3600, END).context.deployments.values()
    origins = [seen.generated_tok_s.provenance, seen.busy_generated_tok_s.provenance, seen.prompt_tok_s.provenance]
    assert origins == [Provenance.REPORTED, Provenance.REPORTED, Provenance.COUNTER]
