"""The fleet that rows and settings describe."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from pertoken.catalog.market import load_market
from pertoken.config import load
from pertoken.costs.fleet import fleet, service_name
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Demand, Slo
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, written

END = 1_790_000_000 // 3600 * 3600
MODEL = LOW_BATCH_70B.model


def seen(folder: Path, text: str = "") -> Fleet:
    where = seed(new_store(folder), LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END)
    settings = load(written(folder, text), {})
    with open_store(where).read() as connection:
        inventory = Window(connection, END - 300, END).inventory
        return fleet(inventory, {"chat": Demand()}, load_market(), settings, END)


def test_a_model_that_no_settings_name_is_a_service_of_its_own(tmp_path: Path) -> None:
    fleet = seen(tmp_path)
    (service,), (host,) = fleet.services, fleet.hosts
    assert (service.name, service.min_replicas) == (MODEL, 1)
    assert set(service.deployments[0].device_ids) <= set(host.device_ids)
    assert host.placement.accelerator == "H100 SXM5"


def test_deployments_share_equal_models_and_placements(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    for host in ("one", "two"):
        where = seed(where, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END, host=host)
    with open_store(where).read() as connection:
        inventory = Window(connection, END - 300, END).inventory
        both = fleet(inventory, {}, load_market(), load(written(tmp_path, ""), {}), END).deployments
    one, two = both
    assert one.model is two.model and one.placement is two.placement


def test_settings_name_services_hosts_and_commitments_that_still_hold(tmp_path: Path) -> None:
    text = f"""
[services.chat]
models = ["{MODEL}"]
min_replicas = 2
[[commitments]]
provider = "aws"
region = "us-east-1"
instance_type = "p5.48xlarge"
count = 1
usd_per_instance_hour = 30
end = "2100-01-01"
[[commitments]]
provider = "aws"
region = "us-east-1"
instance_type = "p5.48xlarge"
count = 1
usd_per_instance_hour = 30
end = "2020-01-01"
"""
    fleet = seen(tmp_path, text)
    assert [(service.name, service.min_replicas) for service in fleet.services] == [("chat", 2)]
    assert [commitment.count for commitment in fleet.commitments] == [1]
    assert service_name("another", load(None, {})) == "another"


def test_devices_carry_the_links_reported_by_their_driver(tmp_path: Path) -> None:
    where = seed(new_store(tmp_path), LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END)
    with closing(sqlite3.connect(where.file("telemetry"))) as db, db:
        uuids = [row[0] for row in db.execute("SELECT uuid FROM device WHERE kind = 'gpu' ORDER BY slot")]
        for one, other in (uuids, uuids[::-1]):
            links = json.dumps({"nvlink": [other, "GPU-of-another-life"], "a kind of tomorrow": [other]})
            db.execute("UPDATE device SET links = ? WHERE uuid = ?", (links, one))
    with open_store(where).read() as connection:
        seen_fleet = fleet(Window(connection, END - 300, END).inventory, {}, load_market(), load(None, {}), END)
    gpus = [device for device in seen_fleet.devices if device.kind == "gpu"]
    assert [gpu.links for gpu in gpus] == [((other.device_id, "nvlink"),) for other in gpus[::-1]]
    assert seen_fleet.slowest_link(gpu.device_id for gpu in gpus) == "nvlink"


def test_limits_of_all_services_are_completed_by_those_of_one(tmp_path: Path) -> None:
    text = f"""
[slo]
ttft_ms = 800
tpot_ms = 50
[advisor]
forbid = ["model"]
quality_gate = true
[services.chat]
models = ["{MODEL}"]
tpot_p95_ms = 30
forbid = ["region"]
quality_passed = ["weight_dtype=fp8"]
"""
    (chat,) = seen(tmp_path / "own", text).services
    assert chat.slo == Slo(ttft_p95_ms=800, tpot_p95_ms=30)
    assert (chat.forbidden, chat.quality_gate, chat.quality_passed) == (
        ("model", "region"),
        True,
        ("weight_dtype=fp8",),
    )
    (open_to_all,) = seen(tmp_path / "none", text.partition("[services")[0]).services
    assert (open_to_all.slo, open_to_all.forbidden) == (Slo(ttft_p95_ms=800, tpot_p95_ms=50), ("model",))
    (ungated,) = seen(tmp_path / "off", f"{text}quality_gate = false").services
    assert ungated.quality_gate is False


def with_knobs(folder: Path, **changed: object) -> Deployment:
    """Return the one deployment of a host, whose epochs have these knobs beside those that were seeded."""
    where = seed(new_store(folder), LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END)
    with closing(sqlite3.connect(folder / "telemetry.db")) as database, database:
        for epoch_id, text in database.execute("SELECT epoch_id, knobs FROM epoch").fetchall():
            knobs = json.dumps({**json.loads(text), **changed})
            database.execute("UPDATE epoch SET knobs = ? WHERE epoch_id = ?", (knobs, epoch_id))
    with open_store(where).read() as connection:
        inventory = Window(connection, END - 300, END).inventory
        (deployment,) = fleet(inventory, {}, load_market(), load(written(folder, ""), {}), END).deployments
    return deployment


def test_the_gpus_that_the_driver_shows_go_before_the_product_of_parallel_sizes(tmp_path: Path) -> None:
    deployment = with_knobs(tmp_path, tp=2, pp=1, dp=4)
    assert (deployment.tp, deployment.dp) == (None, None)
    assert deployment.n_devices == len(deployment.device_ids) == 2


def test_parallel_sizes_of_ranks_on_several_hosts_are_believed(tmp_path: Path) -> None:
    assert with_knobs(tmp_path, tp=8, pp=1, dp=1, rendezvous="10.0.0.1").n_devices == 8


def test_a_cache_dtype_that_is_not_known_is_not_taken_for_the_default(tmp_path: Path) -> None:
    assert with_knobs(tmp_path, kv_dtype=None, undetermined="kv_dtype weight_dtype").kv_dtype == "other"
