"""Facts of `engine_lines.toml` on engines: whether they are developed, their releases, MTP, and their health page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache

from pertoken.catalog.knobs import like
from pertoken.catalog.offers import toml_table


@dataclass(frozen=True, slots=True)
class EngineLine:
    """Maintenance status of an engine; `engine_lines.toml` explains each field."""

    engine: str
    status: str
    last_version: str
    successors: tuple[str, ...]
    source: str
    as_of: date


@dataclass(frozen=True, slots=True)
class EngineRelease:
    """A release of an engine; `engine_lines.toml` explains each field."""

    engine: str
    version: str
    public_by: date
    faster: bool
    changes: str
    source: str
    as_of: date

    @property
    def text(self) -> str:
        """What the release changes, as a phrase."""
        return f"{self.engine} {self.version} (public by {self.public_by}): {self.changes} ({self.source})"


@dataclass(frozen=True, slots=True)
class MultiTokenPrediction:
    """A published gain of models that predict several tokens; `engine_lines.toml` explains each field."""

    engine: str
    models: tuple[str, ...]
    method: str
    drafted: int
    max_running: int
    gains: tuple[float, float]
    setting: str
    source: str
    as_of: date

    @property
    def text(self) -> str:
        """The published gain, as a phrase."""
        alone, many = self.gains
        batches = f" and {many:g} at {self.max_running}" if self.max_running > 1 else ", none is published above"
        return f"{alone:g} times the decode speed at one running request{batches}, on {self.setting} ({self.source})"


@cache
def engine_lines() -> Mapping[str, EngineLine]:
    """Return the statuses by engine. An engine that is not listed is developed, as far as known."""
    return {row["engine"]: EngineLine(**row) for row in toml_table("engine_lines.toml")["line"]}


def version_numbers(version: str | None) -> tuple[int, ...] | None:
    """Return the numbers a version begins with: `0.31.0rc1` and `v0.31.0` as (0, 31, 0), `b6721-0c1e` as (6721,)."""
    match = re.match(r"[vb]?(\d+(?:\.\d+)*)", version or "")
    return None if match is None else tuple(int(part) for part in match[1].split("."))


def newer_releases(engine: str, version: str | None) -> tuple[EngineRelease, ...]:
    """Return the listed releases of an engine after a version, oldest first; empty where that version is unknown."""
    present = version_numbers(version)
    if present is None:
        return ()
    return tuple(release for release in _releases(engine) if (version_numbers(release.version) or ()) > present)


@cache
def _releases(engine: str) -> tuple[EngineRelease, ...]:
    rows = toml_table("engine_lines.toml")["release"]
    return tuple(EngineRelease(**row) for row in rows if row["engine"] == engine)


@cache
def multi_token_prediction(engine: str, model: str) -> MultiTokenPrediction | None:
    """Return the published gain of the MTP head of a model of the catalog under an engine; None if none is listed."""
    gains = (MultiTokenPrediction(**row) for row in toml_table("engine_lines.toml")["mtp"])
    return next((gain for gain in gains if gain.engine == engine and model in gain.models), None)


def health_page(engine: str) -> str | None:
    """Return the path that succeeds only while an engine can serve; None if none is known."""
    rows = toml_table("engine_lines.toml")["health"]
    return next((str(row["page"]) for row in rows if row["engine"] == engine), None)


def runs(engine: str, weight_dtype: str, arch: str) -> bool:
    """Return whether a row lists that the engine runs weights of this dtype on an architecture of the catalog."""
    return (like(engine), weight_dtype, arch.removesuffix("+Grace")) in _combinations()


def not_run(engine: str, weight_dtype: str | None, arch: str | None) -> str | None:
    """Return why a combination is refused, as a sentence; None for one that runs, or of which a part is unknown."""
    if weight_dtype is None or arch is None or runs(engine, weight_dtype, arch):
        return None
    return f"no source lists that {engine} runs {weight_dtype} weights on {arch}"


@cache
def _combinations() -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (engine, weight_dtype, arch)
        for row in toml_table("engine_formats.toml")["runs"]
        for engine in row["engines"]
        for weight_dtype in row["formats"]
        for arch in row["architectures"]
    )
