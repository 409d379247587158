"""One way to serve a workload, with its price: instances that are rented by the hour, or a serverless API."""

from collections.abc import Iterable
from dataclasses import dataclass

from pertoken.catalog.offers import Offer, TokenOffer
from pertoken.forecast.memory import MemoryFit
from pertoken.forecast.tiers import Tier
from pertoken.savings.size.ends import Bounds, Figures
from pertoken.savings.size.workload import Workload
from pertoken.state.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Rented:
    """Replicas of one deployment on whole instances of one offer."""

    deployment: Deployment
    """One replica."""
    offer: Offer
    replicas: tuple[int | None, int, int | None]
    """Fewest that hold the SLO: at the fast end of the forecast, likely, and at its slow end (None: no number does)."""
    figures: Figures
    """Latencies at the likely number of replicas."""
    fit: MemoryFit
    tier: Tier
    """What its forecast rests on."""

    @property
    def sure(self) -> bool:
        """Whether the likely number of replicas holds the SLO even at the slow end of the forecast."""
        return self.replicas[2] == self.replicas[1]

    @property
    def instances(self) -> tuple[int | None, int, int | None]:
        """Whole instances for each number of `replicas`."""
        low, likely, high = self.replicas
        counts = (
            None if count is None else self.offer.instances_for(count, self.deployment.tp or 1) for count in (low, high)
        )
        return next(counts), self.offer.instances_for(likely, self.deployment.tp or 1), next(counts)

    @property
    def devices(self) -> int:
        """Devices that the likely number of replicas works on, of those that are paid for."""
        return self.replicas[1] * (self.deployment.tp or 1)

    @property
    def nano_usd_per_hour(self) -> tuple[int | None, int, int | None]:
        """Price of the whole instances."""
        price = self.offer.nano_usd_per_hour
        low, likely, high = self.instances
        return None if low is None else low * price, likely * price, None if high is None else high * price

    def nano_usd_per_mtok(self, workload: Workload) -> Bounds:
        """Return all dollars over all tokens, prompt (cached included) and generated."""
        mtok = workload.mtok_per_hour
        low, likely, high = self.nano_usd_per_hour
        return None if low is None else low / mtok, likely / mtok, None if high is None else high / mtok


@dataclass(frozen=True, slots=True)
class Serverless:
    """An API that is paid by the token. What latency it has is not known."""

    offer: TokenOffer

    def nano_usd_per_mtok(self, workload: Workload) -> Bounds:
        """Price of the mix of tokens: likely and high without the provider's cache, low with it where it is listed."""
        prompt, output = workload.prompt_len, workload.output_len
        cached = 0.0 if self.offer.cached_input is None else prompt * workload.cached_share

        def mix(cached: float) -> float:
            paid = (prompt - cached) * self.offer.input + cached * (self.offer.cached_input or 0)
            return (paid + output * self.offer.output) / (prompt + output)

        return mix(cached), mix(0.0), mix(0.0)


def cheapest(deployment: Deployment, replicas: int, offers: Iterable[Offer]) -> Offer | None:
    """Return the offer whose whole instances hold the replicas for the fewest dollars; None if none holds one."""
    large = [offer for offer in offers if offer.n_devices >= (deployment.tp or 1)]
    return min(
        large,
        key=lambda offer: (
            offer.instances_for(replicas, deployment.tp or 1) * offer.nano_usd_per_hour,
            offer.nano_usd_per_device_hour,
            offer.key,
        ),
        default=None,
    )
