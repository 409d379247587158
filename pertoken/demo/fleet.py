"""A drawn fleet as values: hosts, engines with their true efficiencies, planted problems and their true savings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypedDict

import numpy as np

from pertoken.catalog.market import Market
from pertoken.costs.prices.stored import Ownership, device_hour
from pertoken.demo.simulator import (
    HOUR_S,
    WEEK_H,
    EngineCourse,
    Floats,
    Shape,
    SimulatedEngine,
    Truth,
    course,
    draw,
    engine,
    weekly,
    while_any,
)
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment, Placement
from pertoken.units import HOURS_PER_MONTH, NANO_USD

Knobs = Mapping[str, Any]
"""Values of fields of a `Deployment`, by name."""
HEALTHY = "healthy"
"""Kind of a scene without a planted problem."""
FOLLOWED = "followed"
"""Kind of the scene with a problem that was fixed a week before the end, as the advisor proposed."""


@dataclass(frozen=True, slots=True)
class HostType:
    """Type of a rented or owned host."""

    name: str
    accelerator: str
    """Catalog name."""
    devices: int
    cpus: int
    memory_gib: int
    clock: int
    """Highest SM clock, MHz."""
    provider: str | None = None
    instance_type: str | None = None
    region: str | None = None
    purchase: str | None = None
    capex_usd: float | None = None
    """Only for an owned host."""
    nameplate_kw: float | None = None

    @property
    def owned(self) -> bool:
        """Whether the host is owned, not rented."""
        return self.capex_usd is not None


@dataclass(frozen=True, slots=True)
class Severity:
    """Quantity that is drawn log-uniformly and sets how large the problem of a scene is."""

    kind: str
    """`knob`, `share`, `version` or `silent`."""
    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PlantedChange:
    """Change that solves the problem of a scene, or values of its earlier epoch that differ."""

    knobs: Knobs = field(default_factory=dict)
    version: str | None = None
    host_type: str | None = None
    release: bool = False
    """Whether one host fewer serves the same."""
    spot: bool = False
    nights: bool = False
    """Whether hosts stop while there are no requests."""
    restart: bool = False
    shorter: bool = False
    """Whether prompts are shorter, by the severity."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One service on its own hosts, with its planted problem."""

    kind: str
    host_types: tuple[str, ...]
    rules: tuple[str, ...] = ()
    """Ids of the rules that find the problem if they propose anything."""
    model: str | None = None
    """None for hosts that serve nothing."""
    names: tuple[str, ...] = ()
    """Candidate names of the service."""
    engine: str = "vllm"
    version: str = ""
    replicas: int = 1
    trace: str = "conversation"
    prompt_len: float = 0.0
    generated_len: float = 0.0
    cached: float = 0.0
    running: tuple[float, float] | None = None
    load: tuple[float, float] | None = None
    peak_to_trough: float = 3.0
    weekend: float = 0.6
    knobs: Knobs = field(default_factory=dict)
    earlier: PlantedChange | None = None
    """Version or knobs of its earlier epoch, where they differ; None without one."""
    severity: Severity | None = None
    stuck_h: tuple[float, float] | None = None
    isolation: str | None = None
    """Value of `isolation` in the service's settings."""
    by_deployment: bool = False
    """Whether its rules run per deployment, so that the target of advice includes the host."""
    days: int = 0
    """Days of history that its rules need."""
    fix: PlantedChange = PlantedChange()

    @property
    def hosts(self) -> int:
        """Number of hosts of the scene."""
        return self.replicas


@cache
def host_types() -> Mapping[str, HostType]:
    """Return the host types by name."""
    return {name: HostType(name, **row) for name, row in _table()["host_types"].items()}


@cache
def scenes() -> tuple[Scene, ...]:
    """Return all scenes, healthy ones included."""
    return tuple(map(_scene, _table()["scene"]))


def _scene(row: Mapping[str, Any]) -> Scene:
    common = _table()["defaults"]
    fields = {**{name: value for name, value in common.items() if name != "knobs"}, **row}
    fields["knobs"] = {**common["knobs"], **row.get("knobs", {})}
    for name in ("host_types", "rules", "names", "running", "load", "stuck_h"):
        if name in fields:
            fields[name] = tuple(fields[name])
    for name in ("earlier", "fix"):
        if name in fields:
            fields[name] = PlantedChange(**fields[name])
    if "severity" in fields:
        drawn = fields["severity"]
        ((kind, name),) = ((key, value) for key, value in drawn.items() if key not in ("low", "high"))
        fields["severity"] = Severity(kind, name, drawn["low"], drawn["high"])
    return Scene(**fields)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("pertoken.demo").joinpath("fleet.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class DrawnHost:
    """A host of the fleet."""

    name: str
    host_type: HostType


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """Requests of the clients of one engine."""

    shape: Shape
    per_s: float
    """Requests in the mean hour of a week."""
    prompt_len: float
    generated_len: float
    cached: float
    """Share of prompt tokens that a prefix cache holds, if it is switched on."""


@dataclass(frozen=True, slots=True)
class DrawnEngine:
    """One engine: its deployment, its clients' requests, and its true efficiencies."""

    host: str
    port: int
    runs: Deployment
    client_load: ClientLoad
    truth: Truth
    previous_runs: Deployment | None = None
    """Its deployment in the first part of the history; None without a change."""
    changed_share: float = 0.5
    """Share of the history before the change from `previous_runs` to `runs`."""
    stuck_h: float = 0.0
    """Hours at the end of the history in which it serves nothing."""


@dataclass(frozen=True, slots=True)
class SceneProblem:
    """A planted problem."""

    scene: Scene
    service: str | None
    """None for hosts that serve nothing."""
    hosts: tuple[str, ...]
    severity: float | None = None

    @property
    def target(self) -> str:
        """Target of advice on the problem, as advice names it."""
        if self.service is None:
            return self.hosts[0]
        return f"{self.service} on {self.hosts[0]}" if self.scene.by_deployment else self.service


@dataclass(frozen=True, slots=True)
class DrawnFleet:
    """A drawn fleet with its problems and the targets without one.

    `followed` are problems that were mended before the end, as the advisor proposed; their targets are healthy.
    """

    seed: int
    hosts: tuple[DrawnHost, ...]
    engines: tuple[DrawnEngine, ...]
    problems: tuple[SceneProblem, ...]
    healthy: tuple[str, ...]
    followed: tuple[SceneProblem, ...] = ()

    def host(self, name: str) -> DrawnHost:
        """Return a host by its name."""
        return next(host for host in self.hosts if host.name == name)

    def of_service(self, name: str | None) -> tuple[DrawnEngine, ...]:
        """Return the engines of a service; an empty tuple for None."""
        return tuple(engine for engine in self.engines if engine.runs.served_model == name)


WEEK_TS = np.arange(WEEK_H) * HOUR_S
FULL = 0.9
"""Maximum load in the busiest hour, as a share of a full batch, on fewer or slower devices."""
LEAD_H = 1
"""Hours that a server starts before the end of a silent interval."""


@dataclass(frozen=True, slots=True)
class Worth:
    """True saving of fixing a problem, per month."""

    usd: float
    share: float
    """Saving as a share of the spend on the target."""
    bankable: bool


def worth(problem: SceneProblem, hosts: Sequence[DrawnHost], engines: Sequence[DrawnEngine], market: Market) -> Worth:
    """Return the saving of fixing a problem; `hosts` and `engines`: of the problem."""
    fix, spend = problem.scene.fix, sum(usd_per_hour(host.host_type, market) for host in hosts)
    per_hour = spend / len(hosts)
    saved, bankable = 0.0, True
    if fix.release:
        saved = per_hour if holds(engines, len(hosts) - 1, market) else 0.0
    elif fix.spot:
        spot = _listed(hosts[0].host_type, "spot", market)
        saved = (len(hosts) - 1) * max(0.0, per_hour - spot) if spot is not None else 0.0
    elif fix.host_type is not None:
        destination = host_types()[fix.host_type]
        moved = [replace(engine, runs=on(engine.runs, destination)) for engine in engines]
        saved = spend - len(hosts) * usd_per_hour(destination, market) if holds(moved, len(moved), market) else 0.0
    elif fix.nights:
        saved = spend * _off_share(engines[0])
    else:
        bankable = False
        changes = [_changed(engine, fix, problem.severity) for engine in engines]
        saved = sum(capacity(old, new, per_hour, market) for old, new in zip(engines, changes, strict=True))
        if fix.restart:
            saved = spend
    return Worth(saved * HOURS_PER_MONTH, saved / spend, bankable)


def capacity(old: DrawnEngine, new: DrawnEngine, per_hour: float, market: Market) -> float:
    """Return the dollars per hour of devices and busy time that become free on a host that stays."""
    old_engine, old_course = _week(old, market)
    new_engine, _ = _week(new, market)
    devices_before, devices_after = old.runs.n_devices or 1, new.runs.n_devices or 1
    running = np.minimum(old_engine.slots, while_any(np.maximum(old_course.running, 1e-9)))
    running_after = np.minimum(running + old_course.waiting, new_engine.slots)
    ratio = (running_after / new_engine.token_s(running_after)) / (running / old_engine.token_s(running))
    free = max(0.0, 1 - devices_after / devices_before)
    growth = max(1.0, devices_after / devices_before)
    freed_time = old_course.busy * np.maximum(0.0, 1 - growth / ratio)
    return per_hour * (free + (1 - free) * float(freed_time.mean()))


def usd_per_hour(host_type: HostType, market: Market) -> float:
    """Return the dollars per hour of a host type. Raises ValueError without a price."""
    if host_type.owned:
        accelerator = market.accelerator(host_type.accelerator)
        power_w = 0.55 * (accelerator.tdp_w or 300.0) if accelerator else None
        terms = Ownership(capex_usd=host_type.capex_usd or 0.0, nameplate_kw=host_type.nameplate_kw)
        return host_type.devices * device_hour(terms, host_type.devices, power_w).nano_usd / NANO_USD
    usd = _listed(host_type, str(host_type.purchase), market)
    if usd is None:
        raise ValueError(f"fleet.toml: the catalog has no {host_type.purchase} price of {host_type.instance_type}")
    return usd


def on(runs: Deployment, host_type: HostType) -> Deployment:
    """Return a deployment moved to hosts of another type."""
    return replace(runs, placement=_placement(host_type))


def _placement(host_type: HostType) -> Placement:
    return Placement(
        host_type.provider,
        host_type.region,
        host_type.instance_type,
        host_type.accelerator,
        host_type.devices,
        host_type.purchase or "owned",
    )


def resized(runs: Deployment, knobs: Knobs) -> Deployment:
    """Return a deployment with other knobs, on the number of devices that they need."""
    changed = replace(runs, **knobs)
    return replace(changed, device_ids=tuple(range(changed.n_devices or 1)))


def _changed(drawn: DrawnEngine, fix: PlantedChange, severity: float | None) -> DrawnEngine:
    runs, load = resized(drawn.runs, fix.knobs) if fix.knobs else drawn.runs, drawn.client_load
    if fix.version is not None:
        runs = replace(runs, engine_version=fix.version)
    if fix.shorter and severity is not None:
        load = replace(load, prompt_len=load.prompt_len * (1 - severity))
    return replace(drawn, runs=runs, client_load=load)


def _week(drawn: DrawnEngine, market: Market) -> tuple[SimulatedEngine, EngineCourse]:
    """Return an engine and its operation in a week of expected requests."""
    load, ones = drawn.client_load, np.ones(WEEK_H)
    true_engine = engine(
        drawn.runs, drawn.truth, market, load.prompt_len * ones, load.generated_len * ones, load.cached * ones
    )
    return true_engine, course(true_engine, WEEK_TS, HOUR_S, _requests(drawn))


def _requests(drawn: DrawnEngine) -> Floats:
    return np.asarray(drawn.client_load.per_s * HOUR_S * weekly(drawn.client_load.shape, WEEK_TS + HOUR_S // 2))


def holds(engines: Sequence[DrawnEngine], hosts: int, market: Market) -> bool:
    """Return whether `hosts` equal engines would hold the summed demand of all engines in the busiest hour."""
    if not engines:
        return True
    true_engine, _ = _week(engines[0], market)
    peak_s = true_engine.slots / true_engine.token_s(true_engine.slots) / true_engine.c.generated_len
    demand_per_s = sum(_requests(drawn) for drawn in engines) / HOUR_S
    return hosts > 0 and bool((demand_per_s <= FULL * hosts * peak_s).all())


def _off_share(drawn: DrawnEngine) -> float:
    """Return the share of the week without requests, less the time to start again."""
    silent = weekly(drawn.client_load.shape, WEEK_TS + HOUR_S // 2) == 0
    later = [np.roll(silent, -ahead) for ahead in range(1, LEAD_H + 1)]
    return float(np.logical_and.reduce([silent, *later]).mean())


def _listed(host_type: HostType, purchase: str, market: Market) -> float | None:
    """Return the list price of a host in dollars per hour, or None."""
    prices = [
        offer.nano_usd_per_device_hour * offer.n_devices / NANO_USD
        for offer in market.all_offers
        if (offer.provider, offer.instance_type, offer.region, offer.purchase)
        == (host_type.provider, host_type.instance_type, host_type.region, purchase)
    ]
    return prices[-1] if prices else None


HEALTHY_SHARE = 0.25
"""Minimum share of healthy hosts."""
MAX_LOAD = 0.5
"""Maximum mean load, as a share of a full batch, for scenes without `load`."""
MIN_SHARE = 0.08
"""Minimum saving of a problem, as a share of the spend on its target. Problems with less are drawn again."""
DRAWS = 40
"""Maximum draws of one scene."""
FOLLOWED_FROM = 8
"""Minimum number of hosts of a fleet with a followed scene, which plants one problem less."""
FOLLOWED_DAYS = 7.2
"""Days from the change of a followed scene to the end: its verdict is due after 7."""


def draw_fleet(seed: int, hosts: int, days: float, market: Market) -> DrawnFleet:
    """Return a random fleet of `hosts` hosts with `days` days of history. The same arguments give the same fleet.

    Raises ValueError for a scene with a saving below `MIN_SHARE` in all draws.
    """
    rng = np.random.default_rng((seed, hosts))
    chosen = list(_chosen(rng, hosts, days))
    drawn_hosts: list[DrawnHost] = []
    engines: list[DrawnEngine] = []
    problems: list[SceneProblem] = []
    healthy: list[str] = []
    followed: list[SceneProblem] = []
    used: set[str] = set()
    numbers: dict[str, int] = {}
    for scene in chosen:
        name = _service_name(rng, scene, used) if scene.model is not None else None
        for _ in range(DRAWS):
            host_type = host_types()[str(rng.choice(list(scene.host_types)))]
            kind = _kind(host_type)
            first = numbers.get(kind, 0) + 1
            new_hosts = [DrawnHost(f"{kind}-{first + slot:02}", host_type) for slot in range(scene.hosts)]
            new_engines: list[DrawnEngine] = []
            severity: float | None = None
            if name is not None:
                new_engines, severity = _engines(rng, scene, name, [host.name for host in new_hosts], host_type, market)
            problem = SceneProblem(scene, name, tuple(host.name for host in new_hosts), severity)
            if scene.kind in (HEALTHY, FOLLOWED) or worth(problem, new_hosts, new_engines, market).share >= MIN_SHARE:
                break
        else:
            raise ValueError(f"fleet.toml: fixing {scene.kind} never saves {MIN_SHARE:.0%} of the spend on its target")
        numbers[kind] = first + scene.hosts - 1
        drawn_hosts += new_hosts
        if scene.kind == FOLLOWED:
            new_engines = [replace(engine, changed_share=1 - FOLLOWED_DAYS / days) for engine in new_engines]
            followed.append(problem)
        engines += new_engines
        if scene.kind in (HEALTHY, FOLLOWED):
            healthy.append(problem.target)
        else:
            problems.append(problem)
    return DrawnFleet(seed, tuple(drawn_hosts), tuple(engines), tuple(problems), tuple(healthy), tuple(followed))


def _chosen(rng: np.random.Generator, hosts: int, days: float) -> Iterator[Scene]:
    """Yield scenes for all hosts: healthy ones, then every problem in random order, repeatedly; a followed one last.

    A scene with several hosts is yielded only once, because it is a large part of the bill.
    """
    long_enough = [scene for scene in scenes() if scene.days <= days]
    problems = [scene for scene in long_enough if scene.kind not in (HEALTHY, FOLLOWED)]
    healthy = [scene for scene in long_enough if scene.kind == HEALTHY]
    followed = [scene for scene in long_enough if scene.kind == FOLLOWED and hosts >= FOLLOWED_FROM]
    hosts_left, first = hosts - len(followed), int(rng.integers(len(healthy)))
    for index in rng.permutation(max(1, round(HEALTHY_SHARE * hosts))):
        yield healthy[(int(index) + first) % len(healthy)]
        hosts_left -= 1
    again = False
    while hosts_left > 0:
        for scene in (problems[int(index)] for index in rng.permutation(len(problems))):
            if scene.hosts <= (min(hosts_left, 1) if again else hosts_left):
                yield scene
                hosts_left -= scene.hosts
        again = True
    yield from followed


def _kind(host_type: HostType) -> str:
    if host_type.owned:
        return f"dc1-{host_type.accelerator.split()[0].lower()}-{host_type.devices}x"
    return str(host_type.instance_type).split(".")[0]


def _service_name(rng: np.random.Generator, scene: Scene, used: set[str]) -> str:
    unused = [candidate for candidate in scene.names if candidate not in used]
    name = str(rng.choice(unused)) if unused else f"{rng.choice(list(scene.names))}-{len(used)}"
    used.add(name)
    return name


def _engines(
    rng: np.random.Generator, scene: Scene, service: str, hosts: Sequence[str], host_type: HostType, market: Market
) -> tuple[list[DrawnEngine], float | None]:
    severity = None
    cached, shape, versions = scene.cached, Shape(scene.trace, scene.peak_to_trough, scene.weekend), []
    knobs = {name: host_type.devices if value == "all" else value for name, value in scene.knobs.items()}
    drawn = scene.severity
    if drawn is not None:
        severity = float(np.exp(rng.uniform(np.log(drawn.low), np.log(drawn.high))))
        if drawn.kind == "knob":
            severity = float(round(severity))
            knobs[drawn.name] = int(severity)
        elif drawn.kind == "share" and drawn.name == "cached":
            cached = severity
        elif drawn.kind == "version":
            versions.append((drawn.name, float(np.log1p(severity))))
        elif drawn.kind == "silent":
            shape = replace(shape, silent=_around_midnight(round(severity)))
    runs = deployment(scene, service, host_type, knobs, scene.version, market)
    lengths = (
        scene.prompt_len * float(np.exp(0.15 * rng.standard_normal())),
        scene.generated_len * float(np.exp(0.15 * rng.standard_normal())),
    )
    mean_running = float(np.exp(rng.uniform(*np.log(scene.running)))) if scene.running else 1.0
    like = Load(1.0, lengths[0], lengths[1], max(1.0, mean_running), cached_share=cached)
    truth = Truth(
        draw(rng, runs, like, market), tuple(versions), _formats(rng), float(np.exp(0.1 * rng.standard_normal()))
    )
    per_s = _rate(scene, rng, runs, truth, lengths, cached, mean_running, market)
    client_load = ClientLoad(shape, per_s, *lengths, cached)
    old_runs = None
    if scene.earlier is not None:
        version = scene.earlier.version or runs.engine_version
        old_runs = replace(runs, engine_version=version, **scene.earlier.knobs)
    stuck = float(np.exp(rng.uniform(*np.log(scene.stuck_h)))) if scene.stuck_h else 0.0
    device_ids = tuple(range(runs.n_devices or 1))
    runs = replace(runs, device_ids=device_ids)
    changed = float(rng.uniform(0.71, 0.75))  # about three weeks of 30 days are before the change, and one is after it
    return [
        DrawnEngine(
            host, 8000, runs, client_load, truth, old_runs and replace(old_runs, device_ids=device_ids), changed, stuck
        )
        for host in hosts
    ], severity


def _formats(rng: np.random.Generator) -> tuple[tuple[str, float], ...]:
    """Return the log deviation of each weight format from the table, with the spread of hosts outside the fit."""
    return tuple((name, float(0.1 * rng.standard_normal())) for name in ("bf16", "fp8", "int8", "int4"))


def _around_midnight(hours: int) -> tuple[int, int]:
    first = (19 + (12 - hours) // 2) % 24
    return first, (first + hours) % 24


def deployment(
    scene: Scene, service: str, host_type: HostType, knobs: Knobs, version: str, market: Market
) -> Deployment:
    """Return the deployment of a scene as the advisor reads it. Raises ValueError for an unknown model."""
    model = market.model(scene.model or "")
    if model is None:
        raise ValueError(f"fleet.toml: the catalog has no model {scene.model}")
    placement = _placement(host_type)
    return Deployment(model, scene.engine, engine_version=version, **knobs, served_model=service, placement=placement)


def _rate(
    scene: Scene,
    rng: np.random.Generator,
    runs: Deployment,
    truth: Truth,
    lengths: tuple[float, float],
    cached: float,
    running: float,
    market: Market,
) -> float:
    """Return the requests per second for a mean of `running` requests, or for the scene's load of the full batch."""
    true_engine = engine(runs, truth, market, np.array([lengths[0]]), np.array([lengths[1]]), np.array([cached]))
    peak = float((true_engine.slots / true_engine.token_s(true_engine.slots))[0]) / lengths[1]
    if scene.load is not None:
        return peak * float(np.exp(rng.uniform(*np.log(scene.load))))
    token_s = float(true_engine.token_s(np.minimum(true_engine.slots, while_any(np.array([running]))))[0])
    return min(running / token_s / lengths[1], MAX_LOAD * peak)


class PlantedProblem(TypedDict):
    """A planted problem with the true saving of fixing it, for JSON."""

    target: str
    kind: str
    rules: list[str]
    """Ids of the rules that would find it."""
    saves_usd_per_month: float
    share_of_spend: float
    bankable: bool


class FleetTruth(TypedDict):
    """The planted problems of a fleet, and the targets without one, for JSON."""

    problems: list[PlantedProblem]
    healthy: list[str]


def truth(fleet: DrawnFleet, market: Market) -> FleetTruth:
    """Return the problems of a fleet, the rules that would find each, and the true saving of fixing it."""
    problems: list[PlantedProblem] = []
    for problem in fleet.problems:
        hosts = [fleet.host(name) for name in problem.hosts]
        true_worth = worth(problem, hosts, fleet.of_service(problem.service), market)
        problems.append(
            {
                "target": problem.target,
                "kind": problem.scene.kind,
                "rules": list(problem.scene.rules),
                "saves_usd_per_month": round(true_worth.usd, 2),
                "share_of_spend": round(true_worth.share, 4),
                "bankable": true_worth.bankable,
            }
        )
    return {"problems": problems, "healthy": list(fleet.healthy)}


def truth_text(fleet: DrawnFleet, market: Market) -> str:
    """Return `truth` as JSON."""
    return json.dumps(truth(fleet, market), indent=2) + "\n"
