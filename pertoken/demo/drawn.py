"""One fleet, drawn from a seed: hosts, engines with their hidden truth, and the problems among them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.demo.fleet import Asked, DrawnEngine, DrawnFleet, DrawnHost, Problem
from pertoken.demo.scenes import HEALTHY, Place, Scene, places, scenes
from pertoken.demo.simulator.arrivals import Shape
from pertoken.demo.simulator.physics import Truth, draw, engine, while_any
from pertoken.demo.worth import worth
from pertoken.forecast.served import Load
from pertoken.state.deployment import Deployment
from pertoken.state.placement import Placement

HEALTHY_SHARE = 0.25
"""Part of the hosts that are healthy, at least."""
MAX_LOAD = 0.5
"""Of a full batch in the mean hour, where a scene does not ask for more."""
MIN_SHARE = 0.08
"""Of the spend on its target that a problem is worth at least; others are drawn again."""
DRAWS = 40


def draw_fleet(seed: int, hosts: int, days: float, market: Market) -> DrawnFleet:
    """Draw a fleet of so many hosts with so long a history; the same seed and numbers give the same fleet."""
    rng = np.random.default_rng((seed, hosts))
    chosen = list(_chosen(rng, hosts, days))
    drawn_hosts: list[DrawnHost] = []
    engines: list[DrawnEngine] = []
    problems: list[Problem] = []
    healthy: list[str] = []
    used: set[str] = set()
    numbers: dict[str, int] = {}
    for scene in chosen:
        name = _service_name(rng, scene, used) if scene.model is not None else None
        for _ in range(DRAWS):
            place = places()[str(rng.choice(list(scene.places)))]
            kind = _kind(place)
            first = numbers.get(kind, 0) + 1
            standing = [DrawnHost(f"{kind}-{first + at:02}", place) for at in range(scene.hosts)]
            found: list[DrawnEngine] = []
            severity: float | None = None
            if name is not None:
                found, severity = _engines(rng, scene, name, [each.name for each in standing], place, market)
            problem = Problem(scene, name, tuple(each.name for each in standing), severity)
            if scene.kind == HEALTHY or worth(problem, standing, found, market).share >= MIN_SHARE:
                break
        else:
            raise ValueError(f"fleet.toml: {scene.kind} is never worth {MIN_SHARE:.0%} of what is spent on it")
        numbers[kind] = first + scene.hosts - 1
        drawn_hosts += standing
        engines += found
        if scene.kind == HEALTHY:
            healthy.append(problem.target)
        else:
            problems.append(problem)
    return DrawnFleet(seed, tuple(drawn_hosts), tuple(engines), tuple(problems), tuple(healthy))


def _chosen(rng: np.random.Generator, hosts: int, days: float) -> Iterator[Scene]:
    """Yield scenes for all hosts: healthy ones for their share, then each kind of problem once before any again.

    Those that take several hosts come once: they are most of the bill.
    """
    bad = [each for each in scenes() if each.kind != HEALTHY and each.days <= days]
    good = [each for each in scenes() if each.kind == HEALTHY]
    left, first = hosts, int(rng.integers(len(good)))
    for at in rng.permutation(max(1, round(HEALTHY_SHARE * hosts))):
        yield good[(int(at) + first) % len(good)]
        left -= 1
    again = False
    while left > 0:
        round_of = [bad[int(at)] for at in rng.permutation(len(bad))]
        for scene in round_of:
            if scene.hosts <= (min(left, 1) if again else left):
                yield scene
                left -= scene.hosts
        again = True


def _kind(place: Place) -> str:
    """Return what names of hosts in a place begin with."""
    if place.owned:
        return f"dc1-{place.accelerator.split()[0].lower()}-{place.devices}x"
    return str(place.instance_type).split(".")[0]


def _service_name(rng: np.random.Generator, scene: Scene, used: set[str]) -> str:
    free = [each for each in scene.names if each not in used]
    name = str(rng.choice(free)) if free else f"{rng.choice(list(scene.names))}-{len(used)}"
    used.add(name)
    return name


def _engines(
    rng: np.random.Generator, scene: Scene, service: str, hosts: Sequence[str], place: Place, market: Market
) -> tuple[list[DrawnEngine], float | None]:
    severity = None
    knobs, cached, shape, versions = dict(scene.knobs), scene.cached, _shape(scene), []
    knobs = {name: place.devices if value == "all" else value for name, value in knobs.items()}
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
    runs = deployment(scene, service, place, knobs, scene.version, market)
    lengths = (
        scene.prompt_len * float(np.exp(0.15 * rng.standard_normal())),
        scene.generated_len * float(np.exp(0.15 * rng.standard_normal())),
    )
    at = float(np.exp(rng.uniform(*np.log(scene.running)))) if scene.running else 1.0
    like = Load(1.0, lengths[0], lengths[1], max(1.0, at), cached_share=cached)
    truth = Truth(
        draw(rng, runs, like, market), tuple(versions), _formats(rng), float(np.exp(0.1 * rng.standard_normal()))
    )
    per_s = _rate(scene, rng, runs, truth, lengths, cached, at, market)
    asked = Asked(shape, per_s, *lengths, cached)
    before = replace(runs, engine_version=scene.before["version"]) if "version" in scene.before else None
    stuck = float(np.exp(rng.uniform(*np.log(scene.stuck_h)))) if scene.stuck_h else 0.0
    used = tuple(range(runs.n_devices or 1))
    runs = replace(runs, device_ids=used)
    changed = float(rng.uniform(0.71, 0.75))  # three weeks of 30 days before it, and one after
    return [
        DrawnEngine(host, 8000, runs, asked, truth, before and replace(before, device_ids=used), changed, stuck)
        for host in hosts
    ], severity


def _formats(rng: np.random.Generator) -> tuple[tuple[str, float], ...]:
    """Return how far each weight format is off the table on one host: as changes of format on unseen hosts were."""
    return tuple((name, float(0.1 * rng.standard_normal())) for name in ("bf16", "fp8", "int8", "int4"))


def _shape(scene: Scene) -> Shape:
    return Shape(scene.trace, scene.peak_to_trough, scene.weekend)


def _around_midnight(hours: int) -> tuple[int, int]:
    first = (19 + (12 - hours) // 2) % 24
    return first, (first + hours) % 24


def deployment(
    scene: Scene, service: str, place: Place, knobs: Mapping[str, Any], version: str, market: Market
) -> Deployment:
    """Return a scene's engine as the advisor would know it, on its first devices."""
    model = market.model(scene.model or "")
    if model is None:
        raise ValueError(f"fleet.toml: the catalog has no model {scene.model}")
    placement = Placement(
        place.provider, place.region, place.instance_type, place.accelerator, place.devices, place.purchase or "owned"
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
    """Return the requests per second that have so many running in the mean hour, or load the full batch so much."""
    one = engine(runs, truth, market, np.array([lengths[0]]), np.array([lengths[1]]), np.array([cached]))
    peak = float((one.slots / one.token_s(one.slots))[0]) / lengths[1]
    if scene.load is not None:
        return peak * float(np.exp(rng.uniform(*np.log(scene.load))))
    token_s = float(one.token_s(np.minimum(one.slots, while_any(np.array([running]))))[0])
    return min(running / token_s / lengths[1], MAX_LOAD * peak)
