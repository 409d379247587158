"""Rules of thumb of an inference engineer: each is a function over an open row and one of its variants.

Rows are JSON, as `pertoken advise --json` prints them. A function returns what an engineer would object to, or None.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pertoken.catalog.market import load_market
from pertoken.catalog.model_facts import common_scores, model_facts

MARKET = load_market()
MAX_RUNNING = {"mtp": 48, "eagle": 48}
"""Largest batch for which a gain of drafts is published, by method; 32 for the others."""
MIN_USD = 100
"""Dollars a month below which no change of days is worth a line."""
STALE_DAYS = 30
"""Age of a list price from which it has a mark."""
MONTH_H = 730
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a fleet beside its rows."""

    down: frozenset[str] = frozenset()
    """Services whose engines are all stuck."""
    isolated: frozenset[str] = frozenset()
    """Services with `isolation = "tenant"`."""
    silent_hosts: frozenset[str] = frozenset()
    engines: Mapping[str, str] = field(default_factory=dict)
    """Engine of each service; vLLM where it is not named."""
    hours: Mapping[str, Sequence[float | None]] | None = None
    """Requests of each service in each of the 168 hours of the week."""


def changed(variant: Row, field: str) -> list[tuple[Any, Any]]:
    """Return values before and after of each edit of a field."""
    return [(edit["before"], edit["after"]) for edit in variant["edits"] if edit["field"] == field]


def seen(row: Row, series: str, figure: str) -> float | None:
    """Return a figure of the evidence; None where it was not read."""
    return next((line[figure] for line in row["evidence"] if line["series"] == series), None)


def usd(variant: Row, kind: str) -> float:
    """Return the likely dollars a month of a saving, confirmed or not; 0 without one."""
    saving = variant["saving"] or variant["if_confirmed"]
    return 0.0 if saving is None else saving[kind][1] / 1e9


def _replaces(variant: Row) -> list[tuple[Any, Any]]:
    return [
        (model_facts().get(before), model_facts().get(after))
        for before, after in changed(variant, "model")
        if before and after
    ]


def older_model(row: Row, variant: Row, facts: Facts) -> str | None:
    for before, after in _replaces(variant):
        if before and after and after.released < before.released:
            return f"{after.name} is older than {before.name}"
    return None


def narrower_licence(row: Row, variant: Row, facts: Facts) -> str | None:
    for before, after in _replaces(variant):
        if before and after and after.licence.narrower_than(before.licence):
            return f"{after.name} is under a narrower licence than {before.name}"
    return None


def unscored_model(row: Row, variant: Row, facts: Facts) -> str | None:
    for before, after in changed(variant, "model"):
        sizes = [MARKET.model(name) for name in (before, after)]
        total, smaller = ((size.params_total or 0) if size else 0 for size in sizes)
        if 3 * smaller < total and not common_scores(before, after):
            return f"{after} is below a third of {before}, without a published score of both"
    return None


def dearer_bill(row: Row, variant: Row, facts: Facts) -> str | None:
    net = usd(variant, "net")
    counted = variant["saving"] is not None and row["unconfirmed"] is None
    return f"the bill rises by ${-net:,.0f}" if counted and net < -0.005 and usd(variant, "capacity") <= -net else None


def no_offer(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to an order of devices without the instance, the place and the price of an hour."""
    fields = ("placement.accelerator", "placement.provider", "placement.instance_type", "placement.region")
    moves = [pair for field in fields for pair in changed(variant, field) if pair[1] is not None]
    ordered = " ".join(change["after"] for change in variant["changes"] if change["field"] == "instances")
    priced = variant["saving"] is not None and usd(variant, "net") > 0
    per_token = any(after == "per_token" for _, after in changed(variant, "placement.purchase"))
    if moves and priced and not per_token and not re.search(r"\d × .+ at \w+.* at \$[\d.,]+/h", ordered):
        return f"it moves to {moves[0][1]} without an offer: {ordered or 'no instance'}"
    return None


def lone_replica(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to one replica in place of several without a word on outages."""
    before, after = variant["replicas"] or (None, None)
    if before is not None and before > 1 and after == 1:
        words = " ".join((*variant["assumptions"], *variant["against"]))
        return None if "outage" in words else f"{before} → 1 replicas without a word on an outage"
    return None


def down_service(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to any change but a restart of a service that is down."""
    if row["target"].split(" on ")[0] in facts.down and not changed(variant, "restart"):
        return f"{row['target']} is down: restart it first"
    return None


def drafts(row: Row, variant: Row, facts: Facts) -> str | None:
    started = [(before, after) for before, after in changed(variant, "num_speculative_tokens") if not before and after]
    if not started:
        return None
    running, waiting = seen(row, "running", "mean"), seen(row, "waiting", "p95")
    method = next((after for _, after in changed(variant, "speculative_method")), "")
    if running is not None and running / len(started) > MAX_RUNNING.get(method, 32):
        return f"{len(started)} engines draft for {running} requests at once"
    if waiting is not None and waiting >= 1:
        return f"it drafts while {waiting:.0f} requests wait"
    return "it drafts for an encoder" if re.search(r"bge|embed|rerank|e5-", row["target"], re.I) else None


def four_bits_first(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to 4 bits before 8 bits that save nearly as much."""
    if not {"int4", "fp4"} & {after for _, after in changed(variant, "weight_dtype")} or variant != row["variants"][0]:
        return None
    mine = (usd(variant, "net"), usd(variant, "capacity"))
    for other in row["variants"]:
        if {"int8", "fp8"} & {after for _, after in changed(other, "weight_dtype")}:
            wide = usd(other, "net"), usd(other, "capacity")
            if wide > (0, 0) and mine <= tuple(1.15 * dollars for dollars in wide):
                return f"4 bits save {mine}, 8 bits {wide}"
    return None


def format_on_architecture(row: Row, variant: Row, facts: Facts) -> str | None:
    for _, accelerator in changed(variant, "placement.accelerator"):
        dtype = next((after for _, after in changed(variant, "weight_dtype")), None)
        engine = facts.engines.get(row["target"], "vllm")
        if accelerator and dtype and (reason := MARKET.not_run(engine, dtype, accelerator)) is not None:
            return reason
    return None


def spot_while_waiting(row: Row, variant: Row, facts: Facts) -> str | None:
    waiting = seen(row, "waiting", "p50")
    spot = any(after == "spot" for _, after in changed(variant, "placement.purchase"))
    return f"spot while {waiting:.0f} requests wait" if spot and waiting is not None and waiting >= 1 else None


def isolated_move(row: Row, variant: Row, facts: Facts) -> str | None:
    touched = {target.partition(":")[2] for target in variant["touches"] if target.startswith("service:")}
    if len(touched) > 1 and (isolated := touched & facts.isolated):
        return f"{', '.join(sorted(isolated))} would share with {', '.join(sorted(touched - isolated))}"
    moved = [after for field in ("placement.provider", "placement.region") for _, after in changed(variant, field)]
    return f"{sorted(touched)} moves to {moved[0]}" if touched & facts.isolated and any(moved) else None


def sleep_with_requests(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to hours of sleep in which the service had requests."""
    requests = (facts.hours or {}).get(row["target"])
    for _, schedule in changed(variant, "schedule"):
        hours = [hour for kind in ("asleep", "off") for hour in (schedule or {}).get(kind, ())]
        busy = [hour for hour in hours if requests is not None and requests[hour]]
        if busy:
            return f"it sleeps in hours {busy[:3]} of the week, with requests"
    return None


def cache_with_room(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to a change of the KV cache while it is less than half full."""
    kv_fields = ("kv_dtype", "kv_offload_bytes")
    used = seen(row, "kv_use", "p95")
    changes = [field for field in kv_fields if any(before != after for before, after in changed(variant, field))]
    moves = changed(variant, "placement.accelerator") or changed(variant, "weight_dtype")
    return f"{changes[0]} while its cache is {used:.0%} full" if changes and not moves and used and used < 0.5 else None


def unmarked_price(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to an old list price without a mark."""
    for text in (*variant["assumptions"], *row["prices"]):
        if (age := re.search(r"(\d+) days ago", text)) and int(age[1]) > STALE_DAYS and "stale" not in text:
            return f"unmarked: {text[:80]}"
    return None


def effort_for_little(row: Row, variant: Row, facts: Facts) -> str | None:
    """Object to days of work for few dollars, of the bill and of capacity."""
    worth = usd(variant, "net") + usd(variant, "capacity")
    if variant["effort"] == "high" and variant["saving"] is not None and 0 < worth < MIN_USD:
        return f"days of work for ${worth:,.0f} a month"
    return None


def silent_host(row: Row, variant: Row, facts: Facts) -> str | None:
    touched = {target.partition(":")[2] for target in variant["touches"] if target.startswith("host:")}
    if silent := touched & facts.silent_hosts:
        return f"{', '.join(sorted(silent))} reports nothing"
    return None


Thumb = Callable[[Row, Row, Facts], str | None]
THUMBS: tuple[Thumb, ...] = (
    older_model, narrower_licence, unscored_model, dearer_bill, no_offer, lone_replica, down_service, drafts,
    four_bits_first, format_on_architecture, spot_while_waiting, isolated_move, sleep_with_requests, cache_with_room,
    unmarked_price, effort_for_little, silent_host,
)  # fmt: skip


def objections(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    """Yield what an engineer would object to in the open rows of a run."""
    open_rows = [row for row in rows if row["state"] == "OPEN"]
    for row in open_rows:
        for variant in row["variants"]:
            for thumb in THUMBS:
                if (objection := thumb(row, variant, facts)) is not None:
                    yield f"{thumb.__name__}: {row['rule_id']} × {row['target']}, {variant['title']}: {objection}"
    yield from _twice(open_rows)


def _twice(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows whose best variants make one change."""
    first: dict[str, Row] = {}
    for row in rows:
        for variant in row["variants"][:1]:
            other = first.setdefault(variant["key"], row)
            if other is not row:
                yield f"twice: {row['rule_id']} and {other['rule_id']} × {row['target']}, {variant['title']}"
