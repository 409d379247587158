"""`python -m tests.chaos.recorder FOLDER URL SEED PAUSE_MS`: an agent's writer and shipper, with a clock of its own.

Ticks as fast as it may, each ten seconds after the last, but for a clock that is stepped: forth by up to two hours, and
back, where rows come late into minutes that were shipped already. The clock is kept beside the folder, so that an agent
whose database is replaced by an older copy goes on later than all that it ever recorded.
"""

import random
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from pertoken.agent.shipper.supervisor import RETRY_S, Shipping
from pertoken.provenance import Provenance
from pertoken.schedule.jobs import Job
from pertoken.schedule.scheduler import Scheduler
from pertoken.store.connect.location import DatabaseServer, locate, server_url
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
    HistogramSample,
    SampleValue,
    Tick,
)
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer
from tests.values import HOST, host_row, host_sample

BEGIN = 1_790_000_000
CARDS = [DeviceRow(stable_id("device", f"c{i}"), HOST, "gpu", f"c{i}", "nvidia", "H100", i) for i in range(2)]
_ENGINE = EngineRow(stable_id("engine", "c"), HOST, "vllm", "http://127.0.0.1:1", 1, 1, 1, "1", "process")
_DEPLOYMENT = DeploymentRow(stable_id("deployment", "c"), _ENGINE.engine_id, HOST, "m")


def tick_at(ts: int, epoch_id: int, start_ts: int, n: int) -> Tick:
    """Return a tick of two devices that serve one model."""
    ids = tuple(card.device_id for card in CARDS)
    samples: list[SampleValue] = [replace(host_sample(ts), load_1e2=n % 1000)]
    samples += [
        DeviceSample(device_id, ts, 10_000, 10_000, util_1e4=n % 10_000, power_mw=300_000 + n) for device_id in ids
    ]
    share = 1_000_000 if n % 90 < 45 else 900_000  # implied by the deployment's row for one half of the time
    samples += [DeviceShare(device_id, epoch_id, ts, 10_000, share, 6_000, Provenance.COUNTER) for device_id in ids]
    samples.append(DeploymentSample(epoch_id, ts, 10_000, 10_000, True, busy_ms=6000, generated_tokens=n))
    samples.append(HistogramSample(epoch_id, "ttft_s", ts, 1, n % 3, 1 + n % 5))
    epoch = EpochRow(epoch_id, _DEPLOYMENT.deployment_id, start_ts, None, "1", "{}", ids)
    return Tick(
        ts=ts,
        host=host_row(),
        devices=tuple(CARDS),
        engines=(_ENGINE,),
        deployments=(_DEPLOYMENT,),
        epochs=(epoch,) if n % 50 == 0 else (),
        samples=tuple(samples),
        bucket_sets={1: (0.1, 0.5)},
    )


def main() -> None:
    """Record and ship until killed, or until standard input ends."""
    folder, url, seed, pause_ms = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    draw = random.Random(seed)
    with Writer(locate(str(folder))) as writer:
        writer.ship(True, raw=False)
        shipping, ending = Shipping(folder, DatabaseServer(server_url(url, "chaos"))), threading.Event()
        scheduler = Scheduler(lambda call: call())
        scheduler.set([Job("shipping", lambda: shipping.round(ending), 0.3, beside=True, retry_s=RETRY_S)])
        scheduler.start()
        clock = folder.parent / "clock"
        reached = int(clock.read_text()) if clock.exists() else 0
        newest = max(BEGIN, writer.restored.newest_ts(HOST) or 0, reached)
        start, taken, n = newest, {newest}, 0
        epoch_id = stable_id("epoch", "c", start)
        ts = newest
        while n == 0 or (folder.parent / "stop").exists() is False:
            n += 1
            ts += 10
            if draw.random() < 0.02:
                ts += draw.choice((-3600, -600, -60, 120, 7200)) // 10 * 10
            # Rows of this life only: a clock that is stepped back comes to ticks that are taken, and passes them.
            ts = max(ts, start + 10)
            while ts in taken:
                ts += 10
            taken.add(ts)
            reached = max(reached, ts)
            _keep(clock, reached)
            writer.commit(tick_at(ts, epoch_id, start, n if n > 1 else 50))
            if n % 6 == 0:
                writer.roll_up(hours=n % 12 == 0)
                shipping.settle(writer)
            with (folder.parent / "events").open("a") as events:
                events.writelines(f"{event.kind}\n" for event in shipping.events())
            time.sleep(pause_ms / 1000)
        writer.roll_up()
        ending.set()
        scheduler.stop()
        shipping.close()


def _keep(clock: Path, ts: int) -> None:
    beside = clock.with_suffix(".new")
    beside.write_text(str(ts))
    beside.replace(clock)


if __name__ == "__main__":
    main()
