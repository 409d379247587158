"""Seeded databases: hosts of H100s serving a 70B, written through the store's own writer."""

import getpass
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pertoken.agent.rows.epochs import bucket_set_id
from pertoken.provenance import Provenance
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
    HistogramSample,
    HostRow,
    SampleValue,
    Tick,
)
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD, SHARE
from tests.values import files_of, host_row, host_sample, is_new_folder, new_store, put_files

H100 = "NVIDIA H100 80GB HBM3"
BOUNDS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LENGTHS = (100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Serving:
    """Load of a deployment in every minute of a scenario."""

    model: str
    knobs: dict[str, object]
    devices: int
    """How many of the host's devices it holds, the first ones."""
    running: float
    waiting: float
    kv_use: float
    busy: float
    generated_tok_s: float
    prompt_tok_s: float
    tpot_s: float
    ttft_s: float
    util: float
    power_w: float
    prefill: float | None = None
    """Share of the busy time; None: its engine counts no time of prefill and decode."""
    cached: float = 0.0
    """Share of the prompt tokens."""
    plug_w: float | None = None
    """Power of the whole server; None: nothing measures it."""
    metered: bool = False
    """Whether its devices count energy."""


LOW_BATCH_70B = Serving(
    model="meta-llama/Llama-3.3-70B-Instruct",
    knobs={
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "tp": 2,
        "pp": 1,
        "dp": 1,
        "max_num_seqs": 256,
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.9,
    },
    devices=2,
    running=2.0,
    waiting=0.0,
    kv_use=0.06,
    busy=0.6,
    generated_tok_s=40.0,
    prompt_tok_s=160.0,
    tpot_s=0.028,
    ttft_s=0.15,
    util=0.97,
    power_w=330.0,
)
HEALTHY_70B = Serving(
    model="meta-llama/Llama-3.3-70B-Instruct",
    knobs={
        "weight_dtype": "fp8",
        "kv_dtype": "bf16",
        "tp": 2,
        "pp": 1,
        "dp": 1,
        "max_num_seqs": 128,
        "max_model_len": 8192,
        "gpu_memory_utilization": 0.9,
    },
    devices=2,
    running=115.0,
    waiting=0.2,
    kv_use=0.82,
    busy=1.0,
    generated_tok_s=3100.0,
    prompt_tok_s=6200.0,
    tpot_s=0.037,
    ttft_s=0.4,
    util=1.0,
    power_w=640.0,
)


def seed(
    where: Path | StoreLocation,
    serving: Serving | None,
    *,
    gpus: int,
    usd_per_hour: float | None,
    minutes: int,
    end_ts: int,
    host: str = "",
    instance: tuple[str, str, str, str] | None = None,
    unread: Collection[int] = (),
) -> StoreLocation:
    """Return a database in which `serving` ran on a host with `gpus` H100s for `minutes` up to `end_ts` (a whole
    minute).

    `host` names another host than the usual one, with devices and a deployment of its own; without `serving` nothing
    runs there. `instance` is its cloud, instance type, region and purchase. `unread` are the minutes, counted from 1,
    in which the engine's page could not be read.
    """
    if isinstance(where, Path):
        where = locate(str(where))
    arguments = (serving, gpus, usd_per_hour, minutes, end_ts, host, instance, frozenset(unread))
    if not is_new_folder(where):
        _record(new_store(where), *arguments)
        return where
    if (recorded := _recorded.get(key := repr(arguments))) is not None:
        put_files(where, recorded)
        return where
    _record(new_store(where), *arguments)
    if len(_recorded) >= MAX_RECORDED:
        del _recorded[next(iter(_recorded))]
    _recorded[key] = files_of(where)
    return where


MAX_RECORDED = 48
_recorded: dict[str, Mapping[str, bytes]] = {}
"""Files of the scenarios that were recorded last: tests that begin with the same one copy it."""


def _record(
    where: StoreLocation,
    serving: Serving | None,
    gpus: int,
    usd_per_hour: float | None,
    minutes: int,
    end_ts: int,
    host: str,
    instance: tuple[str, str, str, str] | None,
    unread: Collection[int],
) -> None:
    with Writer(where) as writer:
        for tick in ticks(serving, gpus, minutes, end_ts, host, instance, unread):
            writer.commit(tick)
        writer.roll_up()
    if usd_per_hour is not None:
        with AdviceRepository(where).writing() as connection:
            repository.add_price(
                connection,
                selector="H100",
                nano_usd_per_device_hour=round(usd_per_hour * NANO_USD),
                from_ts=0,
                set_ts=end_ts - 60 * minutes,
                set_by=getpass.getuser(),
                note=None,
            )


def ticks(
    serving: Serving | None,
    gpus: int,
    minutes: int,
    end_ts: int,
    host: str = "",
    instance: tuple[str, str, str, str] | None = None,
    unread: Collection[int] = (),
) -> Iterator[Tick]:
    """Yield the ticks of `seed`, one a minute."""
    of_host = (host,) if host else ()
    row = replace(host_row(60), host_id=stable_id("host", host), name=host, machine_id=host) if host else host_row(60)
    if instance is not None:
        cloud, instance_type, region, purchase = instance
        row = replace(row, cloud=cloud, instance_type=instance_type, region=region, purchase=purchase)
    uuids = [f"{host}GPU-{i}" for i in range(gpus)]
    devices = [
        DeviceRow(stable_id("device", uuid), row.host_id, "gpu", uuid, "nvidia", H100, i, 85_520_809_984, 700_000)
        for i, uuid in enumerate(uuids)
    ]
    start = end_ts - 60 * minutes
    if serving is None:
        for n in range(1, minutes + 1):
            idle = tuple(_device(device, start + 60 * n, None) for device in devices)
            sample = replace(host_sample(start + 60 * n), host_id=row.host_id)
            yield Tick(ts=start + 60 * n, host=row, devices=tuple(devices), samples=(sample, *idle))
        return
    engine_id = stable_id("engine", "e", *of_host)
    engine = EngineRow(engine_id, row.host_id, "vllm", "http://127.0.0.1:8000", 8000, 1, 1, "0.32.0", "process")
    deployment_id = stable_id("deployment", "d", *of_host)
    deployment = DeploymentRow(deployment_id, engine_id, row.host_id, serving.model, serving.model)
    held = devices[: serving.devices]
    epoch = EpochRow(
        stable_id("epoch", "x", *of_host),
        deployment.deployment_id,
        start,
        None,
        "0.32.0",
        json.dumps(serving.knobs),
        tuple(device.device_id for device in held),
    )
    for n in range(1, minutes + 1):
        tick = _minute(start + 60 * n, n, serving, row, devices, engine, deployment, epoch)
        yield _without_page(tick) if n in unread else tick


def _without_page(tick: Tick) -> Tick:
    """Return the tick as it is when the engine's page could not be read."""
    samples = (
        DeploymentSample(sample.epoch_id, sample.ts, sample.duration_ms, observed_ms=0, complete=True)
        if isinstance(sample, DeploymentSample)
        else sample
        for sample in tick.samples
        if not isinstance(sample, HistogramSample)
    )
    return replace(tick, samples=tuple(samples))


def _minute(
    ts: int,
    n: int,
    serving: Serving,
    host: HostRow,
    devices: list[DeviceRow],
    engine: EngineRow,
    deployment: DeploymentRow,
    epoch: EpochRow,
) -> Tick:
    interval = {"ts": ts, "duration_ms": 60_000, "observed_ms": 60_000}
    busy_ms = round(60_000 * serving.busy)
    generated, prompt = round(60 * serving.generated_tok_s), round(60 * serving.prompt_tok_s)
    requests, cached = max(1, generated // 400), round(prompt * serving.cached)
    prefill_ms = None if serving.prefill is None else round(busy_ms * serving.prefill)
    plug = {} if serving.plug_w is None else {"plug_mj": round(60_000 * serving.plug_w), "plug_ms": 60_000}
    samples: list[SampleValue] = [replace(host_sample(ts), host_id=host.host_id, **plug)]
    for device in devices:
        used = device.device_id in epoch.device_ids
        samples.append(_device(device, ts, serving if used else None))
        if used:
            share = DeviceShare(device.device_id, epoch.epoch_id, ts, 60_000, SHARE, busy_ms, Provenance.REPORTED)
            samples.append(share)
    samples.append(
        DeploymentSample(
            epoch.epoch_id,
            **interval,
            complete=True,
            busy_ms=busy_ms,
            prompt_tokens=prompt,
            cached_tokens=cached,
            computed_tokens=prompt - cached,
            generated_tokens=generated,
            requests_finished=requests,
            preemptions=0,
            running_1e2=round(100 * (serving.running + (n % 3 - 1) * 0.1)),
            waiting_1e2=round(100 * serving.waiting),
            kv_use_1e4=round(1e4 * serving.kv_use),
            busy_provenance=int(Provenance.COUNTER),
            split_ms=None if prefill_ms is None else busy_ms,
            prefill_ms=prefill_ms,
            decode_ms=None if prefill_ms is None else busy_ms - prefill_ms,
        )
    )
    observed = (
        ("tpot_s", BOUNDS, serving.tpot_s, generated),
        ("ttft_s", BOUNDS, serving.ttft_s, requests),
        ("prompt_len", LENGTHS, prompt / requests, requests),
        ("generated_len", LENGTHS, generated / requests, requests),
    )
    for metric, bounds, value, count in observed:
        bucket = sum(value > bound for bound in bounds)
        samples.append(HistogramSample(epoch.epoch_id, metric, ts, bucket_set_id(bounds), bucket, count))
    return Tick(
        ts=ts,
        host=host,
        devices=tuple(devices),
        engines=(engine,),
        deployments=(deployment,),
        epochs=(epoch,) if n == 1 else (),
        samples=tuple(samples),
        bucket_sets={bucket_set_id(bounds): bounds for _, bounds, _, _ in observed},
    )


def _device(device: DeviceRow, ts: int, serving: Serving | None) -> DeviceSample:
    return DeviceSample(
        device.device_id,
        ts=ts,
        duration_ms=60_000,
        observed_ms=60_000,
        util_1e4=round(1e4 * serving.util) if serving else 0,
        memory_used_bytes=77_000_000_000 if serving else 600_000_000,
        power_mw=round(1000 * serving.power_w) if serving else 70_000,
        energy_counter_mj=round(60_000 * serving.power_w) if serving and serving.metered else None,
    )
