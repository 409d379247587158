"""A fleet drawn from a seed: hosts, engines with their true efficiencies, and planted problems."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.demo.fleet import ClientLoad, DrawnEngine, DrawnFleet, DrawnHost, Problem
from pertoken.demo.scenes import FOLLOWED, HEALTHY, HostType, Scene, host_types, scenes
from pertoken.demo.simulator.arrivals import Shape
from pertoken.demo.simulator.physics import Truth, draw, engine, while_any
from pertoken.demo.worth import worth
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment, Placement

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
    problems: list[Problem] = []
    healthy: list[str] = []
    followed: list[Problem] = []
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
            problem = Problem(scene, name, tuple(host.name for host in new_hosts), severity)
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
    left, first = hosts - len(followed), int(rng.integers(len(healthy)))
    for index in rng.permutation(max(1, round(HEALTHY_SHARE * hosts))):
        yield healthy[(int(index) + first) % len(healthy)]
        left -= 1
    again = False
    while left > 0:
        for scene in (problems[int(index)] for index in rng.permutation(len(problems))):
            if scene.hosts <= (min(left, 1) if again else left):
                yield scene
                left -= scene.hosts
        again = True
    yield from followed


def _kind(host_type: HostType) -> str:
    """Return the prefix of the names of hosts of a type."""
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
    knobs, cached, shape, versions = dict(scene.knobs), scene.cached, _shape(scene), []
    knobs = {name: host_type.devices if value == "all" else value for name, value in knobs.items()}
    drawn = scene.severity
    if drawn is not None:
        severity = float(np.exp(rng.uniform(np.log(drawn.low), np.log(drawn.high))))
        if drawn.of == "knob":
            severity = float(round(severity))
            knobs[drawn.name] = int(severity)
        elif drawn.of == "share" and drawn.name == "cached":
            cached = severity
        elif drawn.of == "version":
            versions.append((drawn.name, float(np.log1p(severity))))
        elif drawn.of == "silent":
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
    before = _before(runs, scene)
    stuck = float(np.exp(rng.uniform(*np.log(scene.stuck_h)))) if scene.stuck_h else 0.0
    device_ids = tuple(range(runs.n_devices or 1))
    runs = replace(runs, device_ids=device_ids)
    changed = float(rng.uniform(0.71, 0.75))  # about three weeks of 30 days are before the change, and one is after it
    return [
        DrawnEngine(
            host, 8000, runs, client_load, truth, before and replace(before, device_ids=device_ids), changed, stuck
        )
        for host in hosts
    ], severity


def _before(runs: Deployment, scene: Scene) -> Deployment | None:
    """Return the deployment of the earlier epoch; None without one."""
    if not scene.before:
        return None
    version = scene.before.get("version", runs.engine_version)
    return replace(runs, engine_version=version, **scene.before.get("knobs", {}))


def _formats(rng: np.random.Generator) -> tuple[tuple[str, float], ...]:
    """Return the log deviation of each weight format from the table, with the spread of hosts outside the fit."""
    return tuple((name, float(0.1 * rng.standard_normal())) for name in ("bf16", "fp8", "int8", "int4"))


def _shape(scene: Scene) -> Shape:
    return Shape(scene.trace, scene.peak_to_trough, scene.weekend)


def _around_midnight(hours: int) -> tuple[int, int]:
    first = (19 + (12 - hours) // 2) % 24
    return first, (first + hours) % 24


def deployment(
    scene: Scene, service: str, host_type: HostType, knobs: Mapping[str, Any], version: str, market: Market
) -> Deployment:
    """Return the deployment of a scene as the advisor reads it. Raises ValueError for an unknown model."""
    model = market.model(scene.model or "")
    if model is None:
        raise ValueError(f"fleet.toml: the catalog has no model {scene.model}")
    placement = Placement(
        host_type.provider,
        host_type.region,
        host_type.instance_type,
        host_type.accelerator,
        host_type.devices,
        host_type.purchase or "owned",
    )
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
