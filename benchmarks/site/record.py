"""A run on file: everything that was measured, from which the present forecast can be computed again.

The forecast of a run that is on file is no prediction: what was chosen on it must be judged by another.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.site.closed_loop import Measured
from benchmarks.site.configurations import Configuration
from benchmarks.site.speed import Speed
from pertoken.catalog.market import MeasuredRates
from pertoken.evidence import OperatingPoint


class Measurements(Protocol):
    """Measurements of a run: of a machine, or on file."""

    @property
    def speeds(self) -> dict[str, list[Speed]]:
        """Return the speeds of the machine by phase of the run."""

    @property
    def repeats(self) -> dict[str, int]:
        """Return the figures of the run itself, as counts."""

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Write the models of configurations."""

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        """Return rates of the CPUs by weight dtype."""

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        """Return the points of a probe of one configuration."""

    def left_s(self, probes_s: float) -> float:
        """Return the time left for rounds, if probes take so long before the first."""

    def serve(self, requests: Mapping[Configuration, int]) -> dict[Configuration, list[Measured]]:
        """Return the rounds of each configuration; `requests` is the number of each client."""


@dataclass(slots=True)
class Recording:
    """Measurements that pass through to a file."""

    of: Measurements
    file: Path
    known: dict[str, Any] = field(default_factory=lambda: {"rates": {}, "probes": {}, "rounds": {}})

    @property
    def speeds(self) -> dict[str, list[Speed]]:
        """Return the speeds of the machine by phase of the run."""
        return self.of.speeds

    @property
    def repeats(self) -> dict[str, int]:
        """Return the figures of the run itself."""
        return self.of.repeats

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Write the models of configurations."""
        self.of.prepare(configurations)

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        """Return rates of the CPUs by weight dtype."""
        rates = self.of.rates(threads)
        self._keep("rates", str(threads), {dtype: asdict(rate) for dtype, rate in rates.items()})
        return rates

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        """Return the points of a probe of one configuration."""
        points = self.of.probe(of, seconds)
        parts = self.known["probes"].get(of.label, [])
        self._keep("probes", of.label, [*parts, [asdict(point) for point in points]])
        return points

    def left_s(self, probes_s: float) -> float:
        """Return the time left for rounds, if probes take so long before the first."""
        return self.of.left_s(probes_s)

    def serve(self, requests: Mapping[Configuration, int]) -> dict[Configuration, list[Measured]]:
        """Return the rounds of each configuration; `requests` is the number of each client."""
        self.known["requests"] = {of.label: n for of, n in requests.items()}
        rounds = self.of.serve(requests)
        for configuration, measured in rounds.items():
            self._keep("rounds", configuration.label, [asdict(one) for one in measured])
        self.known["repeats"], self.known["speeds"] = self.of.repeats, self.of.speeds
        self._write()
        return rounds

    def _keep(self, what: str, name: str, value: object) -> None:
        self.known[what][name] = value
        self._write()

    def _write(self) -> None:
        self.file.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")


class OnFile:
    """Measurements of an earlier run. A probe or round that it lacks is empty."""

    def __init__(self, file: Path) -> None:
        self._known: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        self.repeats: dict[str, int] = self._known.get("repeats", {})
        self.speeds: dict[str, list[Speed]] = {
            phase: [(products, copies) for products, copies in speeds]
            for phase, speeds in self._known.get("speeds", {}).items()
        }
        self._parts = {label: iter(parts) for label, parts in self._known["probes"].items()}

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Do nothing: no model is served."""

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        """Return rates of the CPUs by weight dtype."""
        return {dtype: MeasuredRates(**rate) for dtype, rate in self._known["rates"][str(threads)].items()}

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        """Return the points of the next probe of one configuration."""
        return tuple(OperatingPoint(**point) for point in next(self._parts.get(of.label, iter(())), ()))

    def left_s(self, probes_s: float) -> float:
        """Return no time: rounds have the requests that they had."""
        return 0.0

    def requests(self, of: Configuration) -> int:
        """Return the requests of each client in a round."""
        return int(self._known["requests"][of.label])

    def serve(self, requests: Mapping[Configuration, int]) -> dict[Configuration, list[Measured]]:
        """Return the rounds of each configuration."""
        rounds = self._known["rounds"]
        return {of: [Measured(**one) for one in rounds.get(of.label, ())] for of in requests}
