"""What was measured on devices and host reaches the rules."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.advisor.gather import gather
from pertoken.agent.assemble import Cost, Readings, assemble
from pertoken.agent.readings import Gap
from pertoken.catalog.market import load_market
from pertoken.evidence import NotMeasured
from pertoken.store.open import open_store
from pertoken.store.write import Writer
from tests.agent.values import CPU, START_MS, engine, gpu, memory, moment, probe
from tests.values import laid

NOW = START_MS // 1000 + 120


def test_occupancy_links_and_memory_traffic_are_evidence_and_what_is_not_measured_says_how(tmp_path: Path) -> None:
    where, kept = laid(tmp_path), memory()
    links = {"sm_occupancy_1e4": 2000, "nvlink_rx_mib_s": 300, "nvlink_tx_mib_s": 100}
    with Writer(where) as writer:
        for i in range(13):
            read = probe(gpu(0, 101, **links))
            read = replace(read, host=replace(read.host, memory_traffic_bytes=i * 10 * 2**30))
            tick, kept = assemble(
                kept, Readings(read, (engine(100 * i, 10 * i),)), moment(i), Cost(1, 1, 1, 0) if i else None
            )
            writer.commit(tick)
        writer.roll_up()
    found = gather(open_store(where), load_market(), 3600, NOW)
    (seen,) = found.seen.values()
    assert seen.sm_occupancy.mean == pytest.approx(0.2)
    assert seen.nvlink_bytes_s.mean == 400 * 2**20
    assert seen.memory_traffic_bytes_s.mean == pytest.approx(2**30)
    assert seen.memory_traffic_bytes_s.provenance.name == "COUNTER"


def test_an_engine_on_cpus_is_told_what_would_count_its_memory_traffic(tmp_path: Path) -> None:
    where, kept = laid(tmp_path), memory()
    gap = Gap("memory_traffic_bytes", "missing", "its counters are not mounted", "mount -t resctrl")
    with Writer(where) as writer:
        for i in range(13):
            read = replace(probe(), devices=(CPU._replace(gaps=(gap,)),))
            tick, kept = assemble(
                kept, Readings(read, (engine(100 * i, 10 * i),)), moment(i), Cost(1, 1, 1, 0) if i else None
            )
            writer.commit(tick)
        writer.roll_up()
    (seen,) = gather(open_store(where), load_market(), 3600, NOW).seen.values()
    with pytest.raises(NotMeasured, match=r"not mounted\. mount -t resctrl"):
        _ = seen.memory_traffic_bytes_s
