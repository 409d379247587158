"""Figures of hand-written pages, taken from committed results of benchmarks, and the table of checked claims.

Such a page has blocks between `<!-- figures NAME -->` and `<!-- end of figures -->`; what is between is written by
`python -m tools.docs` from the newest result of that name.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pertoken.catalog.claims import claims
from pertoken.catalog.market import load_market
from pertoken.claims import checked, claims_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
PAGES = (
    "README.md",
    "docs/overhead.md",
    "docs/what-is-measured.md",
    "docs/gateways.md",
    "docs/scale.md",
    "docs/how-savings-are-proven.md",
    "docs/claims.md",
    "docs/lake.md",
)
_BLOCK = re.compile(r"(<!-- figures (?P<name>[a-z_]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
Result = Mapping[tuple[str, str], Any]


def filled(text: str) -> str:
    """Return a page with its blocks as the committed results have them."""
    return _BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def newest(name: str) -> tuple[str, Result]:
    """Return the file name and the rows of the newest result of a benchmark, by the date in its file name."""
    dated = re.compile(rf"{re.escape(name)}-(\d{{4}}-\d\d-\d\d)[.-]")
    file = max((path for path in RESULTS.glob("*.json") if dated.match(path.name)), key=lambda path: path.name)
    return file.name, read_result(file)


def read_result(file: Path) -> Result:
    """Return the rows of a result, and its targets."""
    result = json.loads(file.read_text(encoding="utf-8"))
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    return rows | {("target", target["id"]): target["value"] for target in result["targets"]}


def _headline() -> str:
    recovery_file, recovery = newest("recovery")
    decisions_file, decisions = newest("decisions")
    agent_file, agent = newest("agent-10s")
    recovered, coverage = (100 * recovery["target", f"recovery.{name}"] for name in ("found", "coverage"))
    regret, thumb = (100 * decisions["target", f"decisions.{name}"] for name in ("regret", "regret_thumb"))
    share = 100 * agent["pertoken agent with discovery", "cpu_share"]
    return (
        f"- **{recovered:.0f} %** of the problems planted in generated fleets are the first or second advice on their"
        f" service, and {coverage:.0f} % of the\n  changes save what the interval promised"
        f" ([result](benchmarks/results/{recovery_file})).\n"
        f"- **{regret:.1f} %** of the bill is what deciding by its forecast costs more than knowing, on published"
        f" measurements that chose nothing;\n  a rule of thumb costs {thumb:.1f} %"
        f" ([result](benchmarks/results/{decisions_file})).\n"
        f"- **{share:.2f} %** of one core is what the agent takes beside eight GPUs of a stand-in driver"
        f" ([result](benchmarks/results/{agent_file})).\n"
    )


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
                f"[{file}](../benchmarks/results/{file}) |"
            )
    return "\n".join(lines) + "\n"


def _agent_beside() -> str:
    _, rows = newest("agent")
    own, peer = (rows[who, "driver_calls_per_tick"] for who in ("pertoken agent", "nvitop-exporter"))
    new, used = (rows["pertoken agent", what] for what in ("first_sample_new_folder", "first_sample"))
    return (
        f"In the run at 1 s it made {own:.0f} driver calls a tick (nvitop-exporter {peer:.0f}) and held "
        f"{rows['pertoken agent', 'pss']:.0f} MiB (PSS).\n"
        f"The first sample was there {new:.1f} s after the start on a new folder, and {used:.1f} s on a used one.\n"
    )


def _window() -> str:
    file, rows = newest("window")
    growth = 100 * (rows["target", "window.growth"] - 1)
    return (
        f"All of it took {rows['target', 'window.seconds']:.0f} s and {rows['target', 'window.peak_mib']:.0f} MiB on "
        f"two loaded cores; a GPU cost {growth:.0f} % more than among 100 GPUs\n"
        f"([{file}](../benchmarks/results/{file})).\n"
    )


def _hours() -> str:
    file, rows = newest("store")
    ours, theirs = (rows[who, "usd_per_mtok_by_model_and_hour"] for who in ("pertoken", "prometheus"))
    ratio, hours = rows["target", "store.query_ratio"], rows["pertoken", "hours_screen"]
    return (
        f"Dollars per Mtok by model and hour of one host (64 GPUs, 24 h, in SQLite) took {ours:.2g} ms, where PromQL\n"
        f"took {theirs:.3g} ms in turns with it: {ratio:.3f} of it ([{file}](../benchmarks/results/{file})).\n"
        f"The hours screen itself took {hours:.2g} ms, the fleet screen {rows['pertoken', 'fleet_report']:.2g} ms.\n"
    )


_ROWS_PER_GPU_MINUTE = {
    "device_1m": 1.0,
    "deployment_1m": 1 / 4,
    "histogram_1m": 3.0,
    "engine_counter_1m": 3 / 4,
    "host_1m": 1 / 8,
}
"""Of the benchmark's fleet: eight GPUs a host, four a deployment, four histograms of three buckets, three counters."""
_MINUTE_DAYS, _HOUR_DAYS = 30, 730
"""Ages that `init-fleet` sets."""


def _scale_rows() -> str:
    file, sizes = newest("store-sizes")
    lines = ["| table | bytes a row | rows per GPU and minute | bytes per GPU and minute |", "|---|---|---|---|"]
    for name, n in _ROWS_PER_GPU_MINUTE.items():
        size = sizes["pertoken", f"{name} row"]
        lines.append(f"| `{name}` | {size:.0f} | {n:.3g} | {n * size:.0f} |")
    total = _bytes_per_gpu_minute(sizes)
    lines.append(f"| together | | {sum(_ROWS_PER_GPU_MINUTE.values()):.3g} | {total:.0f} |")
    a_day = total * 1440
    return "\n".join(lines) + (
        f"\n\nA day of minutes is {a_day / 1e6:.2f} MB for one GPU, kept for {_MINUTE_DAYS} days; a day of hours (a"
        f" sixtieth) {a_day / 60e3:.0f} kB,\nkept for {_HOUR_DAYS}"
        f" ([{file}](../benchmarks/results/{file})).\n"
    )


def _bytes_per_gpu_minute(sizes: Result) -> float:
    return float(sum(n * sizes["pertoken", f"{name} row"] for name, n in _ROWS_PER_GPU_MINUTE.items()))


def _scale_arriving() -> str:
    file, rows = newest("store-fleet")
    rate, ratio = rows["pertoken", "rows shipped"], rows["target", "store.fleet_ratio"]
    a_day = _bytes_per_gpu_minute(newest("store-sizes")[1]) * 1440
    lines = [
        f"Shipping, one host at a time through one connection, checks included: {rate:,.0f} rows/s, which is"
        f" {ratio:.2f} of a bare staged COPY of\nthe same rows in turns with it"
        f" ([{file}](../benchmarks/results/{file})).\n"
        "The hour under way is sent again with every batch, so that a host that falls silent is not missing from it:"
        " count each\nrow twice.\n",
        "| GPUs | rows/s arriving | of one such connection "
        f"| minutes, {_MINUTE_DAYS} days | hours, {_HOUR_DAYS} days |",
        "|---|---|---|---|---|",
    ]
    for gpus in (1_000, 10_000, 100_000, 1_000_000):
        arriving = 2 * gpus * sum(_ROWS_PER_GPU_MINUTE.values()) / 60
        share = arriving / rate
        minutes, hours = gpus * a_day * _MINUTE_DAYS, gpus * a_day / 60 * _HOUR_DAYS
        of_one = f"{100 * share:.2g} %" if share < 1 else f"{share:.2g} connections"
        lines.append(f"| {gpus:,} | {arriving:,.0f} | {of_one} | {_terabytes(minutes)} | {_terabytes(hours)} |")
    return "\n".join(lines) + "\n"


def _terabytes(n: float) -> str:
    return f"{n / 1e12:.2g} TB" if n >= 1e12 else f"{float(f'{n / 1e9:.2g}'):.0f} GB"


_SCREENS = {
    "fleet screen over 1 h": "fleet screen over the last hour, with a page of lines",
    "fleet screen over 24 h": "the same over 24 h",
    "fleet screen over 1 h 29 min": "over 89 minutes, the first 59 read one by one",
    "a host's week": "a host's week",
    "hours screen, by model": "dollars per Mtok by model and hour, 24 h",
}


def _scale_screens() -> str:
    file, rows = newest("store-fleet")
    large_file, large = newest("store-fleet-10k")
    lines = ["| | CPU, server included | elapsed | growth |", "|---|---|---|---|"]
    for what, label in _SCREENS.items():
        cpu = rows.get(("pertoken", f"{what}, CPU"))
        growth = rows["pertoken", f"{what}, growth with minutes"]
        shown = "" if cpu is None else f"{cpu:.0f} ms"
        lines.append(f"| {label} | {shown} | {rows['pertoken', what]:.0f} ms | {growth:.2f} |")
    for what, label in (("cost by host", "1,250 hosts"), ("cost by service", "each service")):
        cpu, ms = large["pertoken", f"{what}, CPU"], large["pertoken", what]
        lines.append(f"| 10,000 GPUs: cost of {label} over 24 h | {cpu:.0f} ms | {ms:.0f} ms | |")
    links = " and ".join(f"[{result_file}](../benchmarks/results/{result_file})" for result_file in (file, large_file))
    return "\n".join(lines) + (
        f"\n\n*Growth* is the time with minutes of 30 days over that with one, in turns. Results: {links}.\n"
    )


_PROOF = {
    "proof.coverage": "80 % intervals that hold the true effect",
    "proof.false_realized": "savings claimed where there is none",
    "proof.false_realized_upper95": "upper 95 % bound of that share",
    "proof.power_10pct": "savings of 10 % proven within a week",
    "proof.inconclusive": "runs without a verdict",
    "proof.width_10pct": "width of the 90 % interval of a saving of 10 %, median",
    "proof.inconclusive_noisy": "residual of 16 %: runs without a verdict",
    "proof.false_realized_noisy": "residual of 16 %: savings claimed where there is none",
    "proof.kinds_false_realized": "savings claimed where there is none, worst condition",
    "proof.kinds_false_regressed": "losses claimed where there is none, worst condition",
    "proof.kinds_power_10pct": "savings of 10 % proven, worst condition of constant level",
    "proof.kinds_coverage": "80 % intervals that hold the true effect, worst condition",
    "proof.kinds_coverage_upper": "the same, condition with the widest intervals",
}


def _scale_ticks() -> str:
    file, rows = newest("store")
    screens = ("fleet screen over 1 h", "fleet screen over 24 h", "hours screen")
    took = ", ".join(f"{rows['pertoken', f'{screen}, growth with ticks']:.2f} ({screen})" for screen in screens)
    return f"Thirty times as many ticks took, as a multiple: {took}\n([{file}](../benchmarks/results/{file})).\n"


_QUESTIONS = {
    "per_mtok_by_model_and_hour": "dollars per Mtok by model and hour",
    "dollars_by_provider": "dollars by provider",
    "unused_by_cell": "unused by cell",
    "spend_by_month": "spend by month",
    "services_by_idle": "services by what they leave unused",
}


def _lake() -> str:
    file, rows = newest("lake")
    sizes = [(gpus, days) for gpus in (10_000, 1_000_000) for days in (1, 30)]
    header = " | ".join(f"{gpus:,} GPUs, {days} day{'s' * (days > 1)}" for gpus, days in sizes)
    lines = [f"| | {header} |", "|---|" + "---|" * len(sizes)]
    for question, label in _QUESTIONS.items():
        cells = []
        for gpus, days in sizes:
            key = f"{question}.{gpus}.{days}d"
            cells.append(f"{rows['pertoken', key]:.1f} s, {rows['pertoken', f'{key}.peak']:,.0f} MB")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    hours, size = (rows["pertoken", f"{what}.1000000"] for what in ("device_hours", "bytes_per_device_hour"))
    growth = rows["target", "lake.growth_of_ten_times_the_rows"]
    return "\n".join(
        [
            *lines,
            "",
            f"{hours:,.0f} device-hours of 100 cells, {size:.2f} bytes each (lines of the bill and tokens).",
            f"Ten times the rows took {growth:.2f} times as long ([{file}](../benchmarks/results/{file})).",
            "",
        ]
    )


def _lake_engines() -> str:
    file, rows = newest("lake-engines")
    engines = ("pertoken", "PostgreSQL", "Spark, 1 worker", "Spark, 2 workers")
    names = ("DuckDB", *engines[1:])
    lines = [f"| 10,000 GPUs | days | {' | '.join(names)} |", "|---|---|" + "---|" * len(engines)]
    for question, label in _QUESTIONS.items():
        for days in (1, 30):
            seconds = (rows[engine, f"{question}.10000.{days}d"] for engine in engines)
            lines.append(f"| {label} | {days} | {' | '.join(f'{value:.1f} s' for value in seconds)} |")
    return "\n".join([*lines, "", f"Every engine gave the same rows ([{file}](../benchmarks/results/{file})).", ""])


def _lake_iceberg() -> str:
    file, rows = newest("lake-iceberg")
    labels = {
        "publish_seconds_per_day_of_a_cell": ("publish a day of a cell", "{:.3f} s"),
        "publish_again_seconds": ("publish it again", "{:.3f} s"),
        "files_per_day_of_a_cell": ("files of a day of a cell", "{:.1f}"),
        "bytes_per_day_of_a_cell": ("bytes of a day of a cell", "{:,.0f}"),
        "dollars_by_model_seconds": ("dollars by model", "{:.2f} s"),
    }
    lines = ["| | manifests | Iceberg |", "|---|---|---|"]
    for what, (label, form) in labels.items():
        cells = (form.format(rows[subject, what]) for subject in ("pertoken", "pyiceberg"))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"([{file}](../benchmarks/results/{file}))", ""])


def _proof() -> str:
    files = sorted(RESULTS.glob("proof-*.json"))
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    targets = [{target["id"]: target for target in result["targets"]} for result in results]
    names = " | ".join(f"[seed {_seed(file)}](../benchmarks/results/{file.name})" for file in files)
    lines = [f"| | target | {names} |", "|---|---|" + "---|" * len(files)]
    for name, label in _PROOF.items():
        limit = f"{'≥' if targets[0][name]['op'] == '>=' else '≤'} {targets[0][name]['limit']:.2f}"
        limit = "0.75 to 0.90" if name == "proof.coverage" else limit
        lines.append(
            f"| {label} | {limit} | " + " | ".join(f"{target[name]['value']:.3f}" for target in targets) + " |"
        )
    values = [_naive_false(result["rows"]) for result in results]
    lines.append("| the usual comparison: savings claimed where there is none | | " + " | ".join(values) + " |")
    return "\n".join(lines) + "\n"


def _proof_kinds() -> str:
    """Return a line of each kind of history: what is claimed without an effect, and of one of -10 %."""
    file = max(RESULTS.glob("proof-*.json"), key=lambda path: path.name)
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    shares = {(row["method"], row["what"]): row["value"] for row in rows if row["subject"] == "pertoken"}
    lines = [f"| [{_seed(file)}](../benchmarks/results/{file.name}) | {' | '.join(_PROOF_COLUMNS)} |"]
    lines.append("|---|" + "---:|" * len(_PROOF_COLUMNS))
    named = re.compile(r"residual 8%, (?P<siblings>\w+) siblings, effect \+0%, \d+ runs(, (?P<kind>.*))?")
    for method in dict.fromkeys(row["method"] for row in rows):
        if (of := named.fullmatch(method)) is not None:
            changed = method.replace("effect +0%", "effect -10%")
            claimed = [sum(shares.get((one, what), 0.0) for what in CLAIMED) for one in (method, changed)]
            covered = shares.get((method, "covered by the 80 % interval"))
            figures = claimed[0], shares.get((method, "REGRESSED"), 0.0), claimed[1], covered
            label = of["kind"] or f"usual, {of['siblings']} siblings"
            lines.append(f"| {label} | " + " | ".join("–" if x is None else f"{x:.3f}" for x in figures) + " |")
    return "\n".join(lines) + "\n"


CLAIMED = ("REALIZED", "PARTIAL")
_PROOF_COLUMNS = ("false savings", "false losses", "savings of 10 % proven", "80 % intervals that hold 0")


def _nulls() -> str:
    """Return a line of each effect injected into real noise."""
    file = max(RESULTS.glob("nulls-*.json"), key=lambda path: path.name)
    result = json.loads(file.read_text(encoding="utf-8"))
    shares = {(row["method"], row["subject"], row["what"]): row["value"] for row in result["rows"]}
    methods = list(dict.fromkeys(row["method"] for row in result["rows"]))
    count = methods[0].rpartition(", ")[2]
    lines = [
        f"| [{count}](../benchmarks/results/{file.name}) | saving | loss | no effect | no verdict "
        "| two means: saving | loss | t·√2·SD: saving | loss |",
        "|---|" + "---:|" * 8,
    ]
    for method in methods:
        own = [shares.get((method, "pertoken", what), 0.0) for what in ("REGRESSED", "NO_EFFECT", "INCONCLUSIVE")]
        saved = sum(shares.get((method, "pertoken", what), 0.0) for what in CLAIMED)
        peers = [
            shares[method, subject, f"claims a {what}"]
            for subject in ("naive before/after", "t·√2·SD of a day")
            for what in ("saving", "loss")
        ]
        effect = method.split(", ")[1].removeprefix("effect ")
        lines.append(f"| {effect} | " + " | ".join(f"{share:.1%}" for share in (saved, *own, *peers)) + " |")
    return "\n".join(lines) + "\n"


def _guard() -> str:
    name, result = newest("guard")
    kinds = ("requests", "tokens alone")
    lines = [f"| alarms, [of 500 runs](../benchmarks/results/{name}) | pages that count requests | tokens alone |"]
    lines.append("|---|---:|---:|")
    cases = dict.fromkeys(what.rpartition("; ")[0] for subject, what in result if subject == "pertoken")
    for case in cases:
        shares = (result["pertoken", f"{case}; {kind}"] for kind in kinds)
        lines.append(f"| {case} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return "\n".join(lines) + "\n"


def _seed(file: Path) -> str:
    return file.stem.rpartition("-")[2]


def _naive_false(rows: list[dict[str, Any]]) -> str:
    """Return the mean share of false claims over the runs without an effect that the targets are about."""
    shares = [
        float(row["value"])
        for row in rows
        if row["subject"] == "naive before/after" and re.fullmatch(r"residual 8%.*effect \+0%, \d+ runs", row["method"])
    ]
    return f"{sum(shares) / len(shares):.3f}"


def _forecast() -> str:
    _, rows = newest("forecast")
    median, p90, held, sign = (
        100 * rows["unseen", f"macro.{figure}"] for figure in ("median", "p90", "coverage", "sign")
    )
    (stated, stated_far), (thumb, thumb_far) = (
        (100 * rows[subject, "macro.median"], 100 * rows[subject, "macro.p90"])
        for subject in ("unseen, stated", "rule of thumb")
    )
    _, decisions = newest("decisions")
    regret, thumb_regret, losing, claim = (
        100 * decisions["target", f"decisions.{name}"] for name in ("regret", "regret_thumb", "loss", "claim")
    )
    return (
        f"  {median:.0f} % in the median and {p90:.0f} % at the ninth decile, {stated:.0f} and {stated_far:.0f} % where"
        f" model, engine and format are\n  covered by other sources (a rule of thumb: {thumb:.0f} and"
        f" {thumb_far:.0f} %); its 80 % intervals held {held:.0f} %, and the\n  direction was right in {sign:.0f} % of"
        " changes above 10 %.\n"
        f"  Deciding by it costs {regret:.1f} % of the bill more than knowing (by the rule of thumb"
        f" {thumb_regret:.1f} %); {losing:.0f} % of the\n  changes made lose, and the claimed saving is off by"
        f" {claim:.0f} points in the median\n"
    )


def _tenant_shares() -> str:
    file, rows = newest("tenant_shares")
    weighted, flat = (
        f"{rows[what, 'median']:.2f} in the median and {rows[what, 'p90']:.2f} at the ninth decile"
        for what in ("weighted", "by tokens")
    )
    return (
        f"  The distance of weighted shares was {weighted}, that of shares by tokens alone {flat}\n"
        f"  ([{file}](../benchmarks/results/{file})).\n"
    )


def _tenant_servers() -> str:
    _, rows = newest("tenant_servers")
    lines = ["  | server | alone | weighted | unweighted |", "  |---|---|---|---|"]
    for server in dict.fromkeys(subject for subject, what in rows if what == "alone"):
        shares = (rows[server, what] for what in ("alone", "weighted", "unweighted"))
        cells = ("not kept" if share is None else f"{share:.1%}".replace("%", " %") for share in shares)
        lines.append(f"  | {' | '.join((server, *cells))} |")
    context, bare = (value for (_, what), value in rows.items() if what.startswith("decode of a token"))
    ratio = f"a generated token of the third row took {context / bare:.1f} times as long as one without context"
    unsettled, parts = "llama.cpp behind LiteLLM, slots not settled", ("device time of each alone", "costs by tenant")
    first = (rows[unsettled, what] for what in parts)
    alone, by_costs = (f"{share:.1%}".replace("%", " %") for share in first)
    missed = f"A first run of llama.cpp behind LiteLLM gave {by_costs} by `costs` and {alone} alone"
    return "\n".join((*lines, "", f"  At a context of 1,650 tokens {ratio}.", f"  {missed}.\n"))


def _claims() -> str:
    market = load_market()
    return claims_table(checked(claim, market) for claim in claims())


BLOCKS: Mapping[str, Callable[[], str]] = {
    "agent": _agent,
    "agent_beside": _agent_beside,
    "claims": _claims,
    "forecast": _forecast,
    "headline": _headline,
    "hours": _hours,
    "lake": _lake,
    "lake_engines": _lake_engines,
    "lake_iceberg": _lake_iceberg,
    "guard": _guard,
    "nulls": _nulls,
    "proof": _proof,
    "proof_kinds": _proof_kinds,
    "scale_arriving": _scale_arriving,
    "scale_rows": _scale_rows,
    "scale_screens": _scale_screens,
    "scale_ticks": _scale_ticks,
    "tenant_servers": _tenant_servers,
    "tenant_shares": _tenant_shares,
    "window": _window,
}
