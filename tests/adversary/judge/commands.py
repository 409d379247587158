"""Judge of the commands' output: no traceback, an exact ledger, and the dollars of the script."""

import json
from collections.abc import Iterator
from typing import Any

from tests.adversary.judge.finding import Finding
from tests.adversary.played import Played

NANO = 1_000_000_000
ROOM_S = 3.0
"""Device time that may be missing or too much, at each end of the run and at each change of a price."""


def findings(played: Played) -> Iterator[Finding]:
    """Yield all that is wrong with what commands answer."""
    for name, done in played.commands.items():
        if "Traceback (most recent call last)" in done.stderr + done.stdout:
            yield Finding("command", f"{name}: {done.stderr[-1500:]}")
        elif done.returncode not in ((0, 1) if name == "doctor" else (0,)):
            yield Finding("command", f"{name} ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    advise = played.commands.get("advise --json")
    if advise is not None and advise.returncode == 0:
        fleet = json.loads(advise.stdout)["fleet"]
        if fleet["bill"]:
            yield from _ledger(fleet["bill"])
            yield from _dollars(played, fleet)


def _ledger(bill: dict[str, Any]) -> Iterator[Finding]:
    parts = bill["busy"] + bill["idle"] + bill["other"] + bill["unallocated"]
    if bill["paid"] != parts:
        yield Finding("ledger", f"paid {bill['paid']} nano-dollars, the parts are {parts}")


def _dollars(played: Played, fleet: dict[str, Any]) -> Iterator[Finding]:
    """Yield device-seconds times the price in force, by the script; bounds where the clock was stepped far."""
    kinds = {"cpu": 1, "gpu": len({gpu.uuid for gpu in played.world.gpus})}
    began_s, ended_s = played.starts_s[0], played.ended_s
    steps = {round(offset) for _, offset in played.offsets[1:]}
    stepped = bool(played.world.acts_on("clock"))
    low = high = room = 0.0
    for kind, n in kinds.items():
        prices = [(from_ts, usd) for from_ts, selector, usd in played.prices if selector == kind]
        if not prices:
            return
        dearest, cheapest = max(usd for _, usd in prices), min(usd for _, usd in prices)
        if stepped and len(prices) > 1:
            low, high = low + n * cheapest * (ended_s - began_s), high + n * dearest * (ended_s - began_s)
        else:
            seconds = _integral(played, prices, began_s, ended_s)
            low, high = low + n * seconds, high + n * seconds
        room += n * dearest * ROOM_S
    first_s = played.down[0][1] - began_s if played.down else 0.0
    late = first_s * sum(n * max(usd for _, selector, usd in played.prices if selector == k) for k, n in kinds.items())
    paid = fleet["bill"]["paid"] / NANO * 3600
    whole = played.world.touched <= {"agent", "price", *(engine.key for engine in played.world.engines)}
    if paid > high + room:
        yield Finding("dollars", f"paid for {paid:.1f} dollar-hours x 3600, the script comes to {high:.1f} at most")
    # Rows at times that the clock no longer shows are outside of the window.
    if whole and not steps - {0, *steps & {min(steps, default=0)}} and paid < low - room - late:
        yield Finding("dollars", f"paid for {paid:.1f} dollar-hours x 3600, the script comes to {low:.1f}")


def _integral(played: Played, prices: list[tuple[int, float]], began_s: float, ended_s: float) -> float:
    """Return dollars an hour times seconds, in steps of 0.1 s of the stepped clock."""
    total, step_s, at_s = 0.0, 0.1, began_s
    ordered = sorted(prices)
    while at_s < ended_s:
        offset_s = next(offset for since_s, offset in reversed(played.offsets) if since_s <= at_s)
        wall = played.wall_s + at_s + offset_s
        in_force = [usd for from_ts, usd in ordered if from_ts <= wall]
        total += (in_force[-1] if in_force else 0.0) * step_s
        at_s += step_s
    return total
