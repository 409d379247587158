"""Demos that several tests look at: each is made once, and copied."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pertoken.catalog.market import load_market
from pertoken.demo.fleet import DrawnFleet, draw_fleet
from pertoken.demo.making import Demo, make
from pertoken.store.connect.location import StoreLocation, locate
from tests.values import files_of, put_files

END = 1_790_000_000 // 60 * 60
HOSTS, DAYS = 3, 2


def demo(folder: Path) -> tuple[StoreLocation, Demo]:
    """Make a demo of three hosts and two days up to `END`."""
    made, files = _demo()
    where = locate(str(folder))
    put_files(where, files)
    return where, made


@cache
def _demo() -> tuple[Demo, dict[str, bytes]]:
    with TemporaryDirectory() as folder:
        where = locate(folder)
        return make(where, seed_with("tp-too-wide", HOSTS, DAYS), HOSTS, DAYS, END), dict(files_of(where))


def seed_with(kind: str, hosts: int, days: int) -> int:
    """Return the first seed that gives a fleet with a problem of this kind."""
    return next(seed for seed in range(200) if kind in kinds(draw_fleet(seed, hosts, days, load_market())))


def kinds(fleet: DrawnFleet) -> set[str]:
    """Kinds of the problems of a fleet."""
    return {problem.scene.kind for problem in fleet.problems}
