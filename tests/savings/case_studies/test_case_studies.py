"""Case studies of serving cost: each claimed figure beside the product's own prices, sizes and estimates.

The claims are data (`case_studies.toml`). A figure is reproduced where the computed range meets the claimed one; the
table of docs/claims.md has the same rows.
"""

import math
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.errors import BadInput
from pertoken.forecast.queue.load import typical
from pertoken.savings.estimate import Estimate
from pertoken.savings.size.choices import Rented
from pertoken.savings.size.models import known_model
from pertoken.savings.size.ranking import Sizing, size
from pertoken.savings.size.workload import Workload
from pertoken.state.model import Model
from pertoken.state.service import Service, Slo
from pertoken.units import NANO_USD
from pertoken.window.figures import per_mtok
from tests.savings.fleets import fleet_of, host, llama, priced

CLAIMS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("case_studies.toml").read_text())["claim"]
PAGE = Path(__file__).parents[3] / "docs/claims.md"
MARKET = load_market()
LLAMA_8B, LLAMA_70B = (known_model(name, MARKET) for name in ("Llama-3.1-8B", "Llama-3.3-70B"))
SLO = Slo(ttft_p95_ms=2000, tpot_p95_ms=100)
DAY_S, DAYS = 86_400, 30
ROUNDING = 0.01
"""Of a claimed figure: it was rounded to two or three digits."""
Range = tuple[float, float]

# Whisper large-v3 is no model of the catalog, since it transcribes. Sizes: its model card (1.55e9 parameters, 1,500
# positions of the encoder per 30 s of audio).
WHISPER_PARAMETERS, WHISPER_POSITIONS, WHISPER_WINDOW_S = 1.55e9, 1500, 30
REACHED = (0.3, 1.0)
"""Share of an accelerator's bandwidth and FLOPs that is reached: an engine without batching, and all of it."""


def usd_per_mtok(usd: float, tokens: float) -> Range:
    nano = per_mtok(round(usd * NANO_USD), round(tokens))
    assert nano is not None
    return nano / NANO_USD, nano / NANO_USD


def saving(before: float, after: float) -> Range:
    return 1 - after / before, 1 - after / before


def whisper_usd_per_day() -> Range:
    """A100s at AWS list prices that read all weights for each token alone, and compute every position with all."""
    device = MARKET.accelerator("A100 80GB SXM4")
    assert device is not None
    offer = next(
        offer for offer in MARKET.offers(device.name) if (offer.provider, offer.region) == ("aws", "us-east-1")
    )
    windows_per_s = 5000 * 3600 / WHISPER_WINDOW_S / DAY_S
    reading = 50e6 / DAY_S * 2 * WHISPER_PARAMETERS / device.memory_bytes_per_s
    computing = windows_per_s * WHISPER_POSITIONS * 2 * WHISPER_PARAMETERS / device.fp16_flops
    busy, least = ((reading + computing) / share for share in REACHED)
    usd = 24 * offer.nano_usd_per_device_hour / NANO_USD
    return math.ceil(least) * usd, math.ceil(busy) * usd


@cache
def sized(
    model: Model,
    requests_per_s: float,
    prompt: float,
    output: float,
    providers: tuple[str, ...] = ("aws",),
    dtype: str = "fp8",
) -> Sizing:
    workload = Workload(requests_per_s, prompt, output, SLO)
    return size(model, workload, MARKET, providers=providers, dtypes=[dtype])


def best(sizing: Sizing, accelerator: str | None = None) -> Rented:
    return next(rented for rented in sizing.rented if accelerator in (None, rented.deployment.accelerator))


def likely_usd_per_hour(sizing: Sizing) -> float:
    return best(sizing).nano_usd_per_hour[1] / NANO_USD


def tokens_per_turn() -> Range:
    """Tokens of one request in the published trace of conversations."""
    prompt, output = typical("conversation")
    return prompt.mean + output.mean, prompt.mean + output.mean


def shopify_usd_per_month() -> Range:
    """Return a 70B in FP8 on H100s at list prices, cheapest and dearest provider, whatever length the turns have."""
    prompt, output = typical("conversation")
    at_length = 2e9 / DAY_S / (prompt.mean + output.mean), prompt.mean, output.mean
    as_claimed = 2e9 / DAY_S / 10, 8.0, 2.0
    usd = [
        (likely or 0) / NANO_USD * 24 * DAYS
        for load in (at_length, as_claimed)
        for provider in ("aws", "lambda")
        for likely in best(sized(LLAMA_70B, *load, (provider,)), "H100 SXM5").nano_usd_per_hour[1:]
    ]
    return min(value for value in usd if value), max(usd)


def dedicated_times() -> Range:
    """One request a second for each of 20 groups of clients, against all of them together."""
    together, alone = sized(LLAMA_70B, 20, 1500, 300), sized(LLAMA_70B, 1, 1500, 300)
    times = 20 * likely_usd_per_hour(alone) / likely_usd_per_hour(together)
    return times, times


def api_usd_per_mtok() -> float:
    (offer,) = (token_offer for token_offer in MARKET.token_offers(LLAMA_70B) if token_offer.provider == "bedrock")
    assert offer.input == offer.output
    return offer.input / NANO_USD


def self_hosted_usd_per_mtok() -> Range:
    """Return a 70B at AWS list prices at 20 and 60 requests a second all day: best in 16 bits and in 8, both ends."""
    usd = [
        end / NANO_USD
        for requests_per_s in (20, 60)
        for dtype in ("bf16", "fp8")
        for sizing in [sized(LLAMA_70B, requests_per_s, 1500, 300, ("aws",), dtype)]
        for end in best(sizing).nano_usd_per_mtok(sizing.workload)
        if end is not None
    ]
    return min(usd), max(usd)


def times(usd: float) -> Range:
    low, high = self_hosted_usd_per_mtok()
    return usd / high, usd / low


def stable_traffic_saving() -> Range:
    low, high = self_hosted_usd_per_mtok()
    return 1 - high / api_usd_per_mtok(), 1 - low / api_usd_per_mtok()


def edge_utilization() -> Range:
    """Dollars per Mtok of one device by the tokens that it serves at each utilization."""
    (central, _), (best_site, _), (worst_site, _) = (usd_per_mtok(6.88, 1e7 * share) for share in (0.85, 0.5, 0.4))
    return best_site / central, worst_site / central


def edge_times(per_site: float) -> float:
    """100 sites with a spare replica each, against one place with one spare replica; an 8B in FP8, likely."""
    central, site = sized(LLAMA_8B, 100 * per_site, 1000, 200), sized(LLAMA_8B, per_site, 1000, 200)

    def usd(choice: Rented, replicas: int) -> float:
        per_instance = choice.offer.n_devices // (choice.deployment.tp or 1)
        return math.ceil((replicas + 1) / per_instance) * choice.offer.nano_usd_per_hour / NANO_USD

    middle = min(usd(rented, rented.replicas[1]) for rented in central.rented)
    likely = min(usd(rented, rented.replicas[1]) for rented in site.rented)
    return 100 * likely / middle


COMPUTED: dict[str, Callable[[], Range]] = {
    "spotify-saving": lambda: saving(18_000, 4_500),
    "spotify-usd-per-mtok": lambda: usd_per_mtok(4_500, 50e6),
    "spotify-usd-per-day": whisper_usd_per_day,
    "shopify-saving": lambda: saving(2_100_000, 450_000),
    "shopify-usd-per-mtok": lambda: usd_per_mtok(450_000, 2e9 * DAYS),
    "shopify-tokens-per-turn": tokens_per_turn,
    "shopify-usd-per-month": shopify_usd_per_month,
    "jpmorgan-dedicated": dedicated_times,
    "bedrock-usd-per-mtok": lambda: (api_usd_per_mtok(), api_usd_per_mtok()),
    "bedrock-times": lambda: times(api_usd_per_mtok()),
    "bedrock-times-at-8-usd": lambda: times(8),
    "stable-traffic-saving": stable_traffic_saving,
    "edge-utilization": edge_utilization,
    "edge-times": lambda: (edge_times(10), edge_times(1)),
}


def meets(claimed: Range, computed: Range) -> bool:
    return computed[0] <= claimed[1] * (1 + ROUNDING) and computed[1] >= claimed[0] * (1 - ROUNDING)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda study: study["id"])
def test_a_case_study_is_reproduced_where_its_figures_hold_and_else_reported_as_inconsistent(
    claim: dict[str, Any],
) -> None:
    low, high = claim["claimed"]
    computed = COMPUTED[claim["id"]]()
    assert claim["verdict"] == ("reproduced" if meets((low, high), computed) else "inconsistent"), computed
    row = f"| {claim['text']} | {shown((low, high))} {claim['unit']} | {shown(computed)} | {claim['verdict']} |"
    assert row in PAGE.read_text()


def test_every_claim_of_the_page_is_computed() -> None:
    assert [claim["id"] for claim in CLAIMS] == list(COMPUTED)
    assert len(re.findall(r"\| (?:reproduced|inconsistent) \|$", PAGE.read_text(), re.MULTILINE)) == len(CLAIMS)


def shown(figures: Range) -> str:
    low, high = (f"{figure:,.2g}" if figure < 100 else f"{float(f'{figure:.2g}'):,.0f}" for figure in figures)
    if math.isinf(figures[1]):
        return f"above {low}"
    return low if low == high else f"{low} to {high}"


def test_a_model_that_transcribes_is_refused_instead_of_sized() -> None:
    with pytest.raises(BadInput, match="not in the catalog of models"):
        known_model("openai/whisper-large-v3", MARKET)


def test_isolated_clients_keep_the_host_that_sharing_an_engine_would_release() -> None:
    """JPMorgan: no client shares an engine with another one, so that a merge is refused with its reason."""

    def merged(**fields: Any) -> Estimate:
        groups = [
            Service(name, (llama(at, (10 * at, 10 * at + 1), name),), **fields) for at, name in enumerate("ab", 1)
        ]
        fleet = fleet_of(groups, [host(1), host(2)])
        one, other = (fleet.deployment(at) for at in (1, 2))
        return priced(fleet, fleet.merge((one, other), one).release(2))

    shared, apart = merged(), merged(isolation="tenant")
    assert shared.released == ("gpu-2",) and shared.net is not None and shared.net[1] > 0
    assert apart.net is None and 'isolation = "tenant"' in (apart.infeasible or "")
