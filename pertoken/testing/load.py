"""Load of one replica in a typical situation, and consistent evidence of it."""

from dataclasses import dataclass
from typing import Any

from pertoken.evidence import Evidence, Series
from pertoken.state.deployment import Deployment
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from pertoken.testing.builders import evidence, series, service
from pertoken.testing.regime import OBSERVED_H, OF_HOSTS, Regime, regime

CHAT = "chat"


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one replica, and its effect on engine and devices."""

    requests_s: float
    prompt_len: float
    generated_len: float
    ttft_s: float
    tpot_s: float
    busy: float
    waiting: float = 0.0
    cached_share: float = 0.0
    kv_use: float | None = None
    preemptions: float | None = None
    dram_active: float | None = None
    tensor_active: float | None = None
    device_util: float | None = None
    power_w: float | None = None
    """Sum over its devices."""
    device_memory: float | None = None
    sm_clock_mhz: float = 1755.0
    throttled: float = 0.0
    """Share of time in which power, heat or a limit slowed the clocks."""
    hot: float = 0.0
    """Share of `throttled` that is due to heat; the rest is due to power."""
    aborted: float = 0.02
    """Share of finished requests that were aborted."""
    load_s: float = 95.0
    """Time from the start of its process to its first metrics page."""
    peak: float = 1.5
    """p95 of the minutes over their mean."""

    @property
    def evidence(self) -> Evidence:
        """Evidence of one week."""
        prompts, tokens = self.requests_s * self.prompt_len, self.requests_s * self.generated_len
        e2e_s = self.ttft_s + self.tpot_s * self.generated_len
        rates = {
            "requests_s": self.requests_s,
            "prompt_tok_s": prompts,
            "computed_tok_s": prompts * (1 - self.cached_share),
            "generated_tok_s": tokens,
        }
        values = {name: series(mean, p95=mean * self.peak, max=2 * mean * self.peak) for name, mean in rates.items()}
        running = self.requests_s * e2e_s / self.busy
        values["running"] = series(running, p95=running * self.peak, max=2 * running * self.peak)
        values["busy"] = series(self.busy, p95=min(1, self.busy * self.peak), max=min(1, 2 * self.busy * self.peak))
        values["waiting"] = series(self.waiting, p95=self.waiting * self.peak, max=2 * self.waiting * self.peak)
        values["busy_generated_tok_s"] = series(tokens / self.busy)
        values["cached_share"] = series(self.cached_share)
        requests = max(1, round(self.requests_s * 7 * 86_400))
        for name, mean in (("prompt_len", self.prompt_len), ("generated_len", self.generated_len)):
            values[name] = series(mean, p50=0.7 * mean, p95=2.5 * mean, max=4 * mean, n=requests)
        for name, mean in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s), ("itl_s", self.tpot_s), ("e2e_s", e2e_s)):
            values[name] = series(mean, p50=0.9 * mean, p95=1.6 * mean, max=4 * mean, n=requests)
        values["observed_h"] = series(OBSERVED_H, n=1)
        shares = ("kv_use", "dram_active", "tensor_active", "device_util")
        known = {name: getattr(self, name) for name in (*shares, "preemptions", "power_w", "device_memory")}
        for name, mean in known.items():
            if mean is not None:
                high = min(1.0, 1.1 * mean) if name in shares else 1.1 * mean
                values[name] = series(mean, p95=high, max=high)
        return evidence(**values, **self._requests(requests), **self._devices())

    def _requests(self, n: int) -> dict[str, Series]:
        """Return series of arrivals, waiting and ends of requests, and of tokens per step."""
        # Waiting follows from arrivals (Little's law); a preempted request also waits after its first token.
        queue_s = min(self.waiting / self.requests_s, 0.9 * self.ttft_s)
        tokens_s = self.requests_s * (self.prompt_len * (1 - self.cached_share) + self.generated_len)
        step = tokens_s * self.tpot_s / self.busy
        known = {
            "queue_s": series(queue_s, p50=0.9 * queue_s, p95=1.6 * queue_s, max=4 * queue_s, n=n),
            "max_tokens": series(4 * self.generated_len, n=n),
            "step_tokens": series(step, p50=0.8 * step, p95=2.5 * step, max=4 * step, n=n),
            "ended_by_stop": series(0.92 - self.aborted),
            "ended_by_length": series(0.08),
            "ended_by_abort": series(self.aborted),
            "ended_by_error": series(0),
            "ended_by_repetition": series(0),
            "load_s": series(self.load_s, p95=1.2 * self.load_s, max=1.3 * self.load_s, n=4),
            "arrival_dispersion": series(1 + 2 * (self.peak - 1)),
        }
        if self.cached_share:
            known |= {"prefix_hit_rate": series(self.cached_share), "kv_reuse_gap_s": series(60, p95=600, max=3600)}
        return known

    def _devices(self) -> dict[str, Series]:
        """Return energy, clocks and memory, if the devices are measured at all."""
        known = {name: series(value) for name, value in OF_HOSTS.items()}
        if self.power_w is not None:
            power_w, tokens_s = self.power_w, self.requests_s * (self.prompt_len + self.generated_len)
            known |= {
                "energy_w": series(power_w, p95=1.1 * power_w, max=1.1 * power_w),
                "j_per_token": series(power_w / tokens_s, p95=1.2 * power_w / tokens_s, max=2 * power_w / tokens_s),
                "sm_clock_mhz": series(self.sm_clock_mhz),
                "temperature_c": series(61, p95=66, max=70),
                "throttled": series(self.throttled),
                "throttled_power": series(self.throttled - self.hot),
                "throttled_thermal": series(self.hot),
            }
        if self.tensor_active is not None and self.device_util is not None:
            active = max(self.tensor_active, 0.9 * self.device_util)
            known |= {"sm_active": series(active), "sm_occupancy": series(0.3 * active)}
        return known


def service_of(load: Load, replicas: int, like: Deployment, name: str = CHAT, **fields: Any) -> Service:
    """Return replicas of one deployment, each with this load, with their total demand."""
    return service(
        name,
        *[like] * replicas,
        requests_s=load.requests_s * load.peak * replicas,
        prompt_len=load.prompt_len,
        output_len=load.generated_len,
        cached_share=load.cached_share,
        **fields,
    )


def regime_of(name: str, meaning: str, load: Load, present: Fleet) -> Regime:
    """Return a regime of a fleet in which each replica has this load."""
    return regime(present, {service.name: load.evidence for service in present.services}, name=name, meaning=meaning)
