"""Runs of a load generator against one engine: reads `runs.csv`, and each configuration as a candidate."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.devices import device
from benchmarks.forecast.performance.rows import candidate
from pertoken.catalog.market import Accelerator, load_market
from pertoken.forecast.candidates import Candidates, stack
from pertoken.forecast.capacity import free_bytes

REQUESTS = 500
"""Requests of a run: what its rates and durations give (the data's README)."""
LATER_REQUESTS, LATER = 1000, "_v2."
"""The same of the runs whose source file is of the second collection."""
SGLANG_LIMIT = 256
"""Sequences that SGLang ran at once in these runs: by Little's law about 227 of them at every rate above its capacity
(the data's README). vLLM's limit is its default for the device."""
STEP_TOKENS = 8192
"""Prompt tokens of one step: vLLM's default for its API server on large devices. It grows with the longest sequence
where chunked prefill is off; none of the runs has so long prompts that it would matter."""
IDLE_W = {"H100": 75.0, "A100": 55.0}
"""Watts of the idle devices of these runs (the data's README), to take the idle time out of mean watts."""
KEPT_UP = 0.9
"""Share of the arrivals from which a server counts as having kept up."""
OUTPUTS = ("output_tok_s", "tpot_p50_ms", "ttft_p50_ms", "power_w")
"""What is predicted. Watts are of one device while it works."""


class BadFile(Exception):
    """A file of runs cannot be read; the message states which and why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its configuration, its load, and what was measured (NaN where it was not)."""

    id: str
    config: str
    cells: Cells
    rate: float
    """Requests/s sent."""
    requests: int
    prompt: int
    generated: int
    burstiness: float
    completed: float
    """Requests/s finished."""
    measured: tuple[float, ...]
    """In the order of `OUTPUTS`."""
    p90: tuple[float, float]
    """TPOT and TTFT, ms."""

    @property
    def kept_up(self) -> bool:
        """Whether at least `KEPT_UP` of what arrived was finished over the run."""
        return self.completed >= KEPT_UP * self.rate


def read(path: Path) -> list[Run]:
    """Runs with published lengths, in the order of the file. Raises BadFile."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [Cells({name: cell or "" for name, cell in row.items() if name}) for row in csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFile(f"{path}: {error}") from error
    missing = [
        name for name in ("id", "config", "engine", "model", "gpu", "rate_rps") if not rows or name not in rows[0]
    ]
    if missing:
        raise BadFile(f"{path}: no column {', '.join(missing)}")
    return [_run(row) for row in rows if _published(row)]


def _published(row: Cells) -> bool:
    return all((row.number(name) or 0) > 0 for name in ("rate_rps", "input_tokens", "output_tokens"))


def _run(row: Cells) -> Run:
    def number(name: str) -> float:
        value = row.number(name)
        return math.nan if value is None else value

    return Run(
        id=row["id"],
        config=row["config"],
        cells=row,
        rate=number("rate_rps"),
        requests=LATER_REQUESTS if LATER in row["source_ref"] else REQUESTS,
        prompt=round(number("input_tokens")),
        generated=round(number("output_tokens")),
        burstiness=row.number("burstiness") or 1.0,
        completed=number("request_throughput"),
        measured=(number("tps_output"), number("tpot_p50_ms"), number("ttft_p50_ms"), _active_w(row)),
        p90=(number("tpot_p90_ms"), number("ttft_p90_ms")),
    )


def _active_w(row: Cells) -> float:
    """Watts of a device while it works: mean watts hold the idle time of the samples, too."""
    mean, busy = row.number("gpu_power_w"), row.number("gpu_util_pct")
    idle = next((watts for name, watts in IDLE_W.items() if name in row["gpu"]), None)
    if not mean or not busy or idle is None:
        return math.nan
    share = busy / 100
    return (mean - (1 - share) * idle) / share


def by_configuration(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each configuration, by rate. What differs in anything but the rate is another one."""
    runs_by_key: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        lengths = (str(run.prompt), str(run.generated), str(run.burstiness), run.cells["prefix_caching"])
        runs_by_key.setdefault((run.config, *lengths), []).append(run)
    alone = [key[0] for key in runs_by_key]
    return {
        key[0] if alone.count(key[0]) == 1 else "-".join(key): sorted(some, key=lambda run: run.rate)
        for key, some in runs_by_key.items()
    }


def accelerator(run: Run) -> Accelerator | None:
    """Return the device of a run; None for one that nobody knows."""
    return device(run.cells["gpu"])


def candidates(runs: Sequence[Run]) -> Candidates:
    """Return the configuration of each run under its lengths. What the catalog lists of a model counts."""
    columns, tags, *_ = zip(*(candidate(_filled(run)) for run in runs), strict=True)
    c = stack(columns, tags)
    sglang = np.array(["sglang" in run.cells["engine"].lower() for run in runs])
    return replace(
        c,
        max_num_seqs=np.where(sglang, SGLANG_LIMIT, c.max_num_seqs),
        whole_prompts=np.ones(len(runs)),
    )


def fits(c: Candidates) -> bool:
    """Return whether the weights of a single candidate fit in its devices."""
    return bool(free_bytes(c)[0] > 0)


def _filled(run: Run) -> Cells:
    """Return the row with the model's shape from the catalog, as a row of public measurements has it."""
    row = run.cells
    listed = load_market().model(row["model"])
    shape: dict[str, str] = {}
    if listed is not None and listed.params_total and listed.params_active:
        shape = {
            "params_total_b": str(listed.params_total / 1e9),
            "params_active_b": str(listed.params_active / 1e9),
            "n_layers": str(listed.n_layers or ""),
            "n_kv_heads": str(listed.n_kv_heads or ""),
            "head_dim": str(listed.head_dim or ""),
            "model": listed.name,
        }
    blank = dict.fromkeys(("notes", "mode", "spec", "kv_dtype", "batch_or_concurrency"), "")
    return Cells({**row, **shape, **{name: text for name, text in blank.items() if name not in row}})
