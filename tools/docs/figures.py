"""Figures of hand-written pages, taken from committed results of benchmarks.

Such a page has blocks between `<!-- figures NAME -->` and `<!-- end of figures -->`; what is between is written by
`python -m tools.docs` from the newest result of that name.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
PAGES = ("README.md", "docs/scale.md")
_BLOCK = re.compile(r"(<!-- figures (?P<name>[a-z_]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
Found = Mapping[tuple[str, str], Any]


def filled(text: str) -> str:
    """Return a page with its blocks as the committed results have them."""
    return _BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def newest(name: str) -> tuple[str, Found]:
    """Return the file name and the rows of the newest result of a benchmark, by the date in its file name."""
    dated = re.compile(rf"{re.escape(name)}-(\d{{4}}-\d\d-\d\d)[.-]")
    file = max((each for each in RESULTS.glob("*.json") if dated.match(each.name)), key=lambda each: each.name)
    found = json.loads(file.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row["value"] for row in found["rows"]}
    return file.name, rows | {("target", target["id"]): target["value"] for target in found["targets"]}


def _agent() -> str:
    lines = [
        "| interval | discovery | of one core | of nvitop-exporter, same interval | of it, at its 1 s | result |",
        "|---|---|---|---|---|---|",
    ]
    for name, interval in (("agent", "1 s"), ("agent-10s", "10 s")):
        file, rows = newest(name)
        peer = rows["nvitop-exporter", "cpu_share"]
        as_installed = "nvitop-exporter" if name == "agent" else "nvitop-exporter at its default interval"
        for discovery, subject in (("on", "pertoken agent with discovery"), ("off", "pertoken agent")):
            share = rows[subject, "cpu_share"]
            ratio, peer_installed = share / peer, rows.get((as_installed, "cpu_share"))
            default_ratio = "–" if peer_installed is None else f"{share / peer_installed:.2f}"
            lines.append(
                f"| {interval} | {discovery} | {100 * share:.2f} % | {ratio:.2f} | {default_ratio} | "
                f"[{file}](benchmarks/results/{file}) |"
            )
    return "\n".join(lines) + "\n"


def _hours() -> str:
    file, rows = newest("store")
    ours, theirs = (rows[who, "usd_per_mtok_by_model_and_hour"] for who in ("pertoken", "prometheus"))
    ratio, hours = rows["target", "store.query_ratio"], rows["pertoken", "hours_screen"]
    return (
        f"Dollars per Mtok by model and hour of one host (64 GPUs, 24 h, in SQLite) took {ours:.2g} ms, where PromQL\n"
        f"took {theirs:.3g} ms in turns with it: {ratio:.3f} of it ([{file}](../benchmarks/results/{file})).\n"
        f"The hours screen itself took {hours:.2g} ms, the fleet screen {rows['pertoken', 'fleet_report']:.2g} ms.\n"
    )


BLOCKS: Mapping[str, Callable[[], str]] = {"agent": _agent, "hours": _hours}
