"""The one JSON object a benchmark prints: what was measured, where, and which targets it meets."""

import json
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pertoken

PACKAGES = (
    "nvidia-ml-py",
    "psutil",
    "sqlalchemy",
    "apscheduler",
    "prometheus-client",
    "nvitop-exporter",
    "zeus-ml",
    "torch",
    "duckdb",
    "pyspark",
)
"""Whose versions a result names, beside pertoken's and SQLite's."""
_COMPARE = {"<=": float.__le__, ">=": float.__ge__}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure of one subject (pertoken or a peer). `value` None: `method` is the reason."""

    subject: str
    what: str
    value: float | str | None
    unit: str
    method: str


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with the limit it is held to; `op` is `<=` or `>=`. A figure not measured meets nothing."""

    id: str
    value: float | None
    limit: float
    op: str

    @property
    def met(self) -> bool:
        """Whether the figure keeps its limit."""
        return self.value is not None and _COMPARE[self.op](float(self.value), float(self.limit))


def report(name: str, rows: Sequence[Row], targets: Sequence[Target]) -> str:
    """Return the result as JSON text."""
    content = {
        "name": name,
        "machine": machine(),
        "rows": [asdict(row) for row in rows],
        "targets": [{**asdict(target), "met": target.met} for target in targets],
    }
    return json.dumps(content, indent=2)


def machine() -> dict[str, Any]:
    """Return the kind of machine this is; never its name."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {
            "pertoken": pertoken.__version__,
            "sqlite": sqlite3.sqlite_version,
            **{name: _version(name) for name in PACKAGES},
        },
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        word, _, value = line.partition(":")
        if word.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
