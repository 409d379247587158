"""Allocation of each device-hour: the identity of the bill, exact in integer nano-dollars.

For every device and all its time at one price:
paid = sum over deployments of (busy + idle-while-reserved) + other + unallocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pertoken.store.schema.shared import OTHER
from pertoken.units import HOUR_MS, MTOK, NANO_USD, apportion
from pertoken.window.figures import per_mtok

if TYPE_CHECKING:
    from pertoken.window.inventory import Inventory
    from pertoken.window.totals import IntervalSums


_NS_PER_MS = 1_000_000


class Share(NamedTuple):
    """Time in which an epoch held a device (nanoseconds of the whole device), and its busy part."""

    epoch_id: int
    """`OTHER` is foreign work."""
    held_ns: int
    busy_ns: int


class DeviceTime(NamedTuple):
    """One device over some time: how long it was there, and who held it. Devices that did the same are equal."""

    duration_ms: int
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """The dollars of one device over some time, nano-USD."""

    paid: int
    busy: Mapping[int, int]
    idle: Mapping[int, int]
    other: int
    unallocated: int


@dataclass(frozen=True, slots=True)
class BillTotal:
    """Dollars of one window in nano-USD; `paid = busy + idle + other + unallocated`, exactly.

    `idle` is reserved but idle time of deployments, `other` foreign work on priced devices, `unallocated` time in
    which nothing held a priced device.
    """

    paid: int
    busy: int
    idle: int
    other: int
    unallocated: int
    busy_is_bound: bool = False
    """Whether `busy` is an upper bound, and so `idle` a lower one."""


def allocate(time: DeviceTime, nano_usd_per_hour: int) -> Allocation:
    """Split the cost of a device among the epochs that held it. Parts are integers that sum exactly to `paid`."""
    paid = cost(time.duration_ms, nano_usd_per_hour)
    epochs = [share.epoch_id for share in time.shares if share.epoch_id != OTHER]
    busy = [min(share.busy_ns, share.held_ns) for share in time.shares if share.epoch_id != OTHER]
    held = [share.held_ns for share in time.shares if share.epoch_id != OTHER]
    idle = [whole - used for whole, used in zip(held, busy, strict=True)]
    other = sum(share.held_ns for share in time.shares if share.epoch_id == OTHER)
    free = max(0, time.duration_ms * _NS_PER_MS - sum(held) - other)
    parts = apportion(paid, [*busy, *idle, other, free])
    n = len(epochs)
    return Allocation(
        paid=paid,
        busy=dict(zip(epochs, parts[:n], strict=True)),
        idle=dict(zip(epochs, parts[n : 2 * n], strict=True)),
        other=parts[-2],
        unallocated=parts[-1],
    )


def cost(duration_ms: int, nano_usd_per_hour: int) -> int:
    """Return the cost of a device over some time, rounded to the nano-dollar."""
    return divide(duration_ms * nano_usd_per_hour, HOUR_MS)


def divide(numerator: int, denominator: int) -> int:
    """Integer quotient rounded to nearest, halves up."""
    return (2 * numerator + denominator) // (2 * denominator)


class ServedCost(NamedTuple):
    """Dollars and tokens of one or more deployments over a time; None: not known."""

    nano_usd: int | None
    prompt_tokens: int | None
    generated_tokens: int | None
    requests: int | None = None
    """Requests that ended."""
    good_share: float | None = None
    """Least share of the requests within the SLO."""

    @property
    def pooling(self) -> bool:
        """Whether it embeds or ranks: it read prompts, ended requests and generated no token.

        Engines expose no task of a model. A generation has at least one token, so that none over all requests means
        that the model generates nothing.
        """
        return bool(self.prompt_tokens) and self.generated_tokens == 0 and self.requests != 0

    @property
    def counted(self) -> bool:
        """Whether its dollars and tokens are both known, so that they are in quotients of several deployments."""
        return None not in (self.nano_usd, self.prompt_tokens, self.generated_tokens) and not self.pooling

    def price(self, headline: str) -> int | None:
        """Return nano-USD per Mtok, or per 1,000 requests, by a headline of `metrics.HEADLINES`; None if unknown."""
        if self.nano_usd is None:
            return None
        if headline == "per_request":
            return round(self.nano_usd * 1000 / self.requests) if self.requests else None
        if headline == "generated":
            return per_mtok(self.nano_usd, self.generated_tokens)
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        tokens = self.prompt_tokens + self.generated_tokens
        if headline == "blended":
            return per_mtok(self.nano_usd, tokens)
        return round(self.nano_usd * MTOK / (tokens * self.good_share)) if tokens and self.good_share else None


NOTHING = ServedCost(None, None, None)


def together(parts: Iterable[ServedCost]) -> ServedCost:
    """Return the sum of several deployments; one whose dollars or tokens are not known is left out with both.

    So is one that embeds or ranks, whose tokens are others, unless all do: then the tokens are those of prompts.
    """
    parts = list(parts)
    generating = [part for part in parts if not part.pooling] or parts
    counted = [part for part in generating if None not in part[:3]]
    if not counted:
        return NOTHING
    nano_usd, prompt, generated = (sum(part[n] or 0 for part in counted) for n in range(3))
    requests = [part.requests for part in counted]
    good = [part.good_share for part in counted]
    weights = [(part.prompt_tokens or 0) + (part.generated_tokens or 0) for part in counted]
    share = sum((part or 0.0) * weight for part, weight in zip(good, weights, strict=True)) / max(1, sum(weights))
    return ServedCost(
        int(nano_usd),
        int(prompt),
        int(generated),
        None if None in requests else sum(count or 0 for count in requests),
        None if None in good else share,
    )


MIN_SPLIT_SHARE = 0.5
"""Share of the busy dollars that must be split; the rest is taken to be split alike."""
NO_TIMES = "its engine counts no time of prefill and decode"
NO_PRICE = "a device it held has no price"
NO_TOKENS = "its engine counts no tokens"
KINDS = ("prefill_usd_per_mtok", "cached_usd_per_mtok", "decode_usd_per_mtok")
"""Figures of `KindPrice`: of computed, cached and generated tokens."""


@dataclass(frozen=True, slots=True)
class KindDollars:
    """Dollars of a deployment by what its devices did, nano-USD; those of `NAMES` sum to all of its dollars."""

    NAMES: ClassVar = ("prefill", "cached", "decode", "unsplit", "idle")
    prefill: int = 0
    """Computation of prompt tokens."""
    cached: int = 0
    """Busy time that is neither prefill nor decode: lookup and transfer of cached tokens."""
    decode: int = 0
    """Generation of tokens."""
    unsplit: int = 0
    """Busy time of an unknown kind of work."""
    idle: int = 0
    overlapped: int = 0
    """Of `prefill` and `decode`: time that may be either, as requests ran together."""
    decode_low: int = 0
    """Least part of `decode`."""

    @property
    def busy(self) -> int:
        """Dollars of busy time."""
        return self.prefill + self.cached + self.decode + self.unsplit

    @property
    def split_share(self) -> float:
        """Share of the busy dollars whose kind of work is known; 0 where it is too little to stand for the rest."""
        share = 1 - self.unsplit / self.busy if self.busy else 0.0
        return share if share >= MIN_SPLIT_SHARE else 0.0

    @property
    def total(self) -> int:
        """All dollars."""
        return self.busy + self.idle

    @property
    def decode_range(self) -> tuple[int, int]:
        """Bounds of `decode`."""
        return self.decode_low, self.decode_low + self.overlapped

    @property
    def prefill_range(self) -> tuple[int, int]:
        """Bounds of `prefill`."""
        split = self.prefill + self.decode
        return split - self.decode_low - self.overlapped, split - self.decode_low

    def __add__(self, added: KindDollars) -> KindDollars:
        return KindDollars(*map(sum, zip(astuple(self), astuple(added), strict=True)))


class TokenWeights(NamedTuple):
    """Dollars of a token by its kind, nano-USD per 10^9 tokens: in proportion to them dollars are divided."""

    computed: int
    cached: int
    generated: int
    prompt: int
    """Of prompt tokens of both kinds together."""

    @property
    def of_prompts(self) -> TokenWeights:
        """The same weights where computed and cached tokens are not distinguished."""
        return self._replace(computed=self.prompt, cached=self.prompt)


EQUAL = TokenWeights(1, 1, 1, 1)


def token_weights(dollars: KindDollars | None, tokens: Mapping[str, int | None]) -> TokenWeights | str:
    """Return the weights of the tokens that these dollars paid for, or why they are not known."""
    if dollars is None or not dollars.split_share:
        return NO_TIMES
    prompt, generated = (tokens.get(name) for name in ("prompt_tokens", "generated_tokens"))
    if prompt is None or generated is None:
        return NO_TOKENS
    cached = min(tokens.get("cached_tokens") or 0, prompt)
    weights = TokenWeights(
        _per_gtok(dollars.prefill, prompt - cached),
        _per_gtok(dollars.cached, cached),
        _per_gtok(dollars.decode, generated),
        _per_gtok(dollars.prefill + dollars.cached, prompt),
    )
    return weights if cached else weights.of_prompts


def _per_gtok(nano_usd: int, tokens: int) -> int:
    return divide(nano_usd * 10**9, tokens) if tokens else 0


class KindPrice(NamedTuple):
    """Busy dollars of one kind of token per million of them, with its bounds, or the reason why it is not known."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class TokenCounts(NamedTuple):
    """Tokens by kind; None: not counted by all deployments."""

    prompt: int | None
    cached: int | None
    generated: int | None


def kind_prices(kinds: KindDollars | None, counts: TokenCounts) -> dict[str, KindPrice]:
    """Return the prices of each kind of token, by the name of their figure.

    A cached token takes no more of the prefill than a computed one: that is the upper bound of its price, and the lower
    one of computed tokens. Dollars of time that is not split are taken to be split alike.
    """
    if kinds is None:
        return dict.fromkeys(KINDS, KindPrice(None, reason=NO_PRICE))
    if not kinds.split_share:
        return dict.fromkeys(KINDS, KindPrice(None, reason=NO_TIMES))
    (prefill_low, prefill_high), (decode_low, decode_high) = kinds.prefill_range, kinds.decode_range
    prompt, cached, generated = counts
    no_cached = "its engine counts no cached tokens"
    computed = None if prompt is None or cached is None else prompt - min(cached, prompt)
    cached_share = 0.0 if not prompt or cached is None else min(cached, prompt) / prompt
    parts = (
        (computed, kinds.prefill, prefill_low * (1 - cached_share), prefill_high, no_cached),
        (cached, kinds.cached, kinds.cached, kinds.cached + prefill_high * cached_share, no_cached),
        (generated, kinds.decode, decode_low, decode_high, NO_TOKENS),
    )
    return {name: _kind_price(*part, kinds.split_share) for name, part in zip(KINDS, parts, strict=True)}


def _kind_price(
    tokens: int | None, nano_usd: int, low: float, high: float, uncounted: str, split_share: float
) -> KindPrice:
    if not tokens:
        return KindPrice(None, reason=uncounted if tokens is None else "no token of this kind was served")
    value, lowest, highest = (nano / split_share / NANO_USD / tokens * MTOK for nano in (nano_usd, low, high))
    return KindPrice(value, lowest, highest)


def kinds_by_deployment(
    intervals: Sequence[IntervalSums],
    costs: Sequence[Mapping[int, Allocation]],
    inventory: Inventory,
) -> dict[int, KindDollars]:
    """Return the dollars of each deployment by kind; `costs` are the allocations of devices in each interval.

    Worker ranks do the same work as their head rank.
    """
    from pertoken.window.totals import by_deployment, summed

    owner = {**inventory.deployment_of, **inventory.heads}
    dollars: dict[int, KindDollars] = {}
    for interval, allocations in zip(intervals, costs, strict=True):
        busy, idle = _by_owner(allocations.values(), owner)
        work = by_deployment(summed([interval.totals]), inventory)
        for deployment_id in busy.keys() | idle.keys():
            part = split(busy.get(deployment_id, 0), idle.get(deployment_id, 0), work.get(deployment_id, {}))
            dollars[deployment_id] = dollars.get(deployment_id, KindDollars()) + part
    return dollars


def split(busy: int, idle: int, work: Mapping[str, int | None]) -> KindDollars:
    """Split busy nano-USD by the sums of `busy_ms`, `split_ms`, `prefill_ms` and `decode_ms`.

    Prefill and decode are at most that. What they exceed the split time by is overlap, which both get in proportion;
    what they lack is the remainder. A model that generates nothing computes prompts all the time.
    """
    if work.get("prompt_tokens") and work.get("generated_tokens") == 0:
        return KindDollars(prefill=busy, idle=idle)
    split_ms = work.get("split_ms") or 0
    prefill_ms, decode_ms = (min(split_ms, work.get(name) or 0) for name in ("prefill_ms", "decode_ms"))
    unsplit_ms = max(0, (work.get("busy_ms") or 0) - split_ms)
    overlap_ms, remainder_ms = max(0, prefill_ms + decode_ms - split_ms), max(0, split_ms - prefill_ms - decode_ms)
    if not split_ms:
        return KindDollars(unsplit=busy, idle=idle)
    both_ms, shared_ms = max(1, prefill_ms + decode_ms), split_ms - remainder_ms
    weights = prefill_ms * shared_ms, remainder_ms * both_ms, decode_ms * shared_ms, unsplit_ms * both_ms
    prefill, cached, decode, unsplit = apportion(busy, weights)
    if not overlap_ms:
        return KindDollars(prefill, cached, decode, unsplit, idle, 0, decode)
    both = prefill + decode
    low = min(decode, divide(both * (shared_ms - prefill_ms), shared_ms))
    return KindDollars(prefill, cached, decode, unsplit, idle, divide(both * overlap_ms, shared_ms), low)


def _by_owner(allocations: Iterable[Allocation], owner: Mapping[int, int]) -> tuple[Counter[int], Counter[int]]:
    """Return the busy and the idle nano-USD of each deployment."""
    busy, idle = Counter[int](), Counter[int]()
    for allocation in allocations:
        for nano_by_deployment, nano_by_epoch in ((busy, allocation.busy), (idle, allocation.idle)):
            for epoch_id, nano_usd in nano_by_epoch.items():
                nano_by_deployment[owner[epoch_id]] += nano_usd
    return busy, idle
