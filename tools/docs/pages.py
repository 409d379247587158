"""The text of each reference page, made from the code. A test compares the committed pages with it."""

import inspect
from collections.abc import Iterable
from pathlib import Path

import click

from pertoken.advisor.rules.discovery import installed, source_of
from pertoken.advisor.worker.child import RuleLimits
from pertoken.advisor.worker.run import RuleInfo, run_plugins
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import Adapter, Counter, Metric
from pertoken.agent.engines.reader import MODEL_S
from pertoken.cli import main as cli
from pertoken.config import Settings, meanings
from pertoken.metrics import ENGINE, ENGINE_TIMES, SERIES
from pertoken.state.deployment import knobs
from pertoken.store.schema import advice, fleet, telemetry
from pertoken.text.keys import KEYS
from pertoken.units import format_duration
from tools.docs import forecast, supported

FOLDER = Path(__file__).parents[2] / "docs"
_NOTE = "<!-- Written by `python -m tools.docs`; change the code instead. -->\n"


_CLI = """\
All commands and options, as `pertoken COMMAND --help` prints them. The shortest start, on a host that serves a model:

```sh
pertoken up
```
"""
_SETTINGS = """\
All keys of the settings file, each also an environment variable. The file is that of `--config`, else of
`PERTOKEN_CONFIG`, else `pertoken.toml` beside the database of the command, else the platform's. A file with every key
explained, and a check of it:

```sh
pertoken config init
pertoken config check
```
"""
_RULES = """\
Pages of the rules that pertoken installs: what each proposes, why, when it is wrong, and its options. In a terminal:

```sh
pertoken rules explain ID
```
"""
_TABLES = """\
Tables of the database, for those who query it with SQL. Primary keys are bold. Rows of one table as a file:

```sh
pertoken export csv --table deployment_1h
```
"""
_ENGINES = """\
Which metrics of each inference server are read, and from which of its own names. What the servers of your host expose:

```sh
pertoken doctor
```
"""


def pages() -> dict[str, str]:
    """Return the generated pages by file name."""
    return {
        "cli.md": _cli(),
        "settings.md": _settings(),
        "rules.md": _rules(),
        "keys.md": _keys(),
        "schema.md": _schema(),
        "engines.md": _engines(),
        "supported.md": supported.page(_NOTE),
        "forecast.md": forecast.page(_NOTE),
    }


def _cli() -> str:
    parts = [f"# Command line\n\n{_NOTE}\n{_CLI}"]

    def add(command: click.Command, path: str, parent: click.Context | None) -> None:
        # A width of its own, so that the page does not depend on the terminal that wrote it.
        context = click.Context(
            command, info_name=path.split()[-1], parent=parent, terminal_width=96, help_option_names=["-h", "--help"]
        )
        parts.append(f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n")
        for name, subcommand in getattr(command, "commands", {}).items():
            add(subcommand, f"{path} {name}", context)

    add(cli, "pertoken", None)
    return "\n".join(parts)


def _settings() -> str:
    explained = meanings()
    lines = [
        f"# Settings\n\n{_NOTE}\n{_SETTINGS}",
        "| key | environment | default | example | meaning |",
        "|---|---|---|---|---|",
    ]
    for key in Settings.table():
        default = "" if key.default is None else f"`{key.default}`"
        lines.append(
            f"| `{key.name}` | `{key.environment}` | {default} | `{key.example}` | {explained[key.attribute]} |"
        )
    return "\n".join(lines) + "\n"


_READING = """\
Each series has `mean`, `max`, `n` and the quantiles `p10`, `p25`, `p50`, `p75`, `p90`, `p95` and `p99` over the window.
`seen.hours.NAME` is its mean in each of the 168 hours of the week (UTC, Monday 00:00 first), None for hours without
observations. The window is that of the run (`advisor.since`, 7 days) or of the rule: `@rule("its-id", window="28d")`,
from 1 minute to 28 days. If minutes are deleted or too numerous, hours are read instead, and `by_hour` is true.
`seen.epochs` are the earlier epochs of the deployment (of all replicas of a service) in the last eight weeks, oldest
first: intervals in which version, knobs and devices stayed the same. Each has `start`, `end`, `engine_version`,
`driver`, `knobs`, `tokens`, and names what `changed` since. Its `present` compares it with the present epoch at like
load: `ratio` is the device time per token now over then (low, likely, high of a 90 % interval) over `matched_hours`;
hours are matched by hour of the week, load, share of generated tokens and cached share. If they do not match, `ratio`
is None, and `code` and `reason` state why. `seen.epochs` is empty if nothing changed.
A series that no engine or driver exposes raises `NotMeasured`, with how to measure it.
"""


def _rules() -> str:
    lines = [f"# Built-in rules\n\n{_NOTE}\n{_RULES}"]
    own = [source_of(package, Settings()) for package in installed() if package.distribution == "pertoken"]
    rules = [rule for run in run_plugins(own, None, RuleLimits()) for rule in run.known]
    for rule in sorted(rules, key=lambda rule: rule.rule_id):
        lines += [f"## `{rule.rule_id}`\n\n{rule.title}\n\n{rule.body}".rstrip() + "\n"]
        if rule.window_s is not None:
            lines += [f"Looks at the last {format_duration(rule.window_s)}, whatever `advisor.since` is.\n"]
        lines += [f"### {name}\n\n{text}\n" for name, text in rule.sections.items()]
        lines += _options(rule)
    lines += ["## What a rule may change\n", "With `but(...)` on a deployment, or on all of a service.\n"]
    lines += ["| knob | what it is | values | restart | risk |", "|---|---|---|---|---|"]
    lines += [
        f"| `{knob.name}` | {knob.label} | {knob.domain} | {'yes' if knob.restart else 'no'} | {knob.risk} |"
        for knob in knobs().values()
    ]
    lines += [f"\n## What a rule may read\n\n{_READING}", "| series | unit | meaning |", "|---|---|---|"]
    lines += [f"| `seen.{name}` | {spec.unit} | {spec.meaning} |" for name, spec in SERIES.items()]
    return "\n".join(lines) + "\n"


def _options(rule: RuleInfo) -> list[str]:
    if not rule.options:
        return []
    lines = [f"### Options\n\nIn `[rules.{rule.rule_id}]` of the configuration file.\n"]
    lines += ["| option | default | values | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{option.name}` | `{option.default}` | {option.domain} | {option.meaning} |" for option in rule.options
    ]
    return [*lines, ""]


_KEYMAP = """Keys of the screens (`pertoken top`, `pertoken up`); `?` shows them there. Other keys are set in
the settings file, by action. Two actions with one key are refused at start.

```toml
[screens.keys]
sort = "f6"
jump = "ctrl+g"
```

A filter (`/`) keeps rows that hold every word. `!words` leaves out rows that hold one of them; `~lm70` keeps rows with
these letters in this order. The screens open no network connections.
"""


def _keys() -> str:
    lines = [f"# Keys\n\n{_NOTE}\n{_KEYMAP}", "| key | action | does |", "|---|---|---|"]
    lines += [f"| `{key.shown}` | `{key.action}` | {key.help} |" for key in KEYS]
    return "\n".join(lines) + "\n"


def _schema() -> str:
    lines = [f"# Tables\n\n{_NOTE}\n{_TABLES}"]
    for group, tables in (("telemetry", telemetry), ("advice", advice), ("fleet", fleet)):
        lines.append(f"## {group}\n\n{inspect.getdoc(tables)}\n")
        for table in tables.metadata.sorted_tables:
            keys = ", ".join(f"**{column.name}**" for column in table.primary_key)
            rest = ", ".join(column.name for column in table.columns if not column.primary_key)
            lines.append(f"- `{table.name}`: {keys}{', ' + rest if rest else ''}")
        lines.append("")
    return "\n".join(lines)


def _engines() -> str:
    lines = [f"# Engines\n\n{_NOTE}\n{_ENGINES}", "| engine | metrics page | tested on |", "|---|---|---|"]
    for adapter in ADAPTERS.values():
        page = f"`{adapter.metrics_path}`" if adapter.metrics_path else "none"
        lines.append(f"| [{adapter.kind}](#{adapter.kind.replace('.', '')}) | {page} | {adapter.tested_on} |")
    lines += ["\n## Metrics\n", "| metric | on screens | unit | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {spec.label} | {spec.unit} | {spec.meaning} |"
        for table in ENGINE
        for name, spec in table.items()
    ]
    lines += [
        "\n## Busy time\n",
        "How long an engine worked is computed from its own time counters, never from a driver's utilization. Requests "
        "that run together overlap, so their time is an upper bound (`≤`): decode time is divided by the tokens per "
        "step where steps are counted, and the sum is capped by the observed time. Time that is counted late, when a "
        "request ends, is reported after it: the sum over time is right, and lags by at most one request. A "
        "restart of the agent meanwhile loses the unreported part: less busy time, never more. Rows from before busy "
        "time was read from counters have the whole tick if any request ran in it; they are upper bounds, too.\n",
        "| engine | busy time from | exact |",
        "|---|---|---|",
    ]
    lines += [f"| {adapter.kind} | {_busy_source(adapter)} |" for adapter in ADAPTERS.values()]
    for adapter in ADAPTERS.values():
        lines.append(f"\n## {adapter.kind}\n\nTested on {adapter.tested_on}. Names: {adapter.source}.\n")
        if adapter.no_tokens:
            lines.append(f"Tokens are unknown: {adapter.no_tokens.reason}. To have them: {adapter.no_tokens.remedy}.\n")
        if adapter.metrics_path and not adapter.no_tokens:
            lines.append(f"Without counters: {adapter.metrics_off}.\n")
        if adapter.never_read:
            lines.append(f"`{adapter.never_read}` is never read: that would take it from whoever reads it.\n")
        lines.append(f"A model that is swapped in a living server is {_swap(adapter)}.\n")
        if adapter.at_finish:
            listed = ", ".join(f"`{word}`" for word in sorted(adapter.at_finish))
            lines.append(f"Counted when a request finishes, so short windows lag: {listed}.\n")
        if adapter.copies:
            listed = ", ".join(f"`{label}`" for label in sorted(adapter.copies))
            lines.append(f"Series that differ only in {listed} repeat one count; other series are summed.\n")
        if adapter.limits:
            lines.append(f"{adapter.limits}\n")
        if adapter.several:
            lines.append(
                f"Its page may count for several models (`{adapter.model_label}`): each is an engine of its own.\n"
            )
        for label, value in sorted({pair for counter in adapter.counters for pair in counter.elsewhere}):
            words_of = [counter.name for counter in adapter.counters if (label, value) in counter.elsewhere]
            listed = ", ".join(f"`{word}`" for word in words_of)
            lines.append(f"Series with `{label}={value}` count nothing of {listed}: they are counted elsewhere.\n")
        if metrics := (*adapter.counters, *adapter.gauges, *adapter.histograms):
            lines += ["| metric | names, newest first |", "|---|---|"]
            lines += [f"| `{metric.name}` | {_names(metric)} |" for metric in metrics]
    return "\n".join(lines) + "\n"


def _swap(adapter: Adapter) -> str:
    if adapter.metrics_path is None:
        return "seen at each reading"
    if adapter.model_label is None:
        return (
            f"seen within {MODEL_S} s, at once where its counters begin again; until then it counts as the one before"
        )
    return f"seen at the next page (`{adapter.model_label}`)"


def _busy_source(adapter: Adapter) -> str:
    """Return the source of an engine's busy time, and when it is exact, as two cells of a table."""
    names = {metric.name: f"`{metric.engine_names[0]}`" for metric in adapter.counters if metric.name in ENGINE_TIMES}
    if not names:
        return "nothing: unknown; its devices' dollars are at most busy | no"
    requests = " + ".join(names[word] for word in ("prefill_ms", "decode_ms") if word in names)
    if "steps" in names:
        requests += f", by {names['steps']}"
    source = ", else ".join(filter(None, (names.get("engine_ms"), requests)))
    exact = [
        "engine time, with one data-parallel rank" if "engine_ms" in names else "",
        "if no two requests ever ran together"
        if "requests_per_step" in {gauge.name for gauge in adapter.gauges}
        else "",
    ]
    return f"{source} | {'; '.join(filter(None, exact)) or 'no'}"


def _names(metric: Metric) -> str:
    where = f" with {', '.join(f'{name}={value}' for name, value in metric.where)}" if metric.where else ""
    reason = f" by {metric.reason}" if isinstance(metric, Counter) and metric.reason else ""
    whole = f" without {metric.parts}" if metric.parts else ""
    pages = ""
    if isinstance(metric, Counter):
        pages += f", beside {_quoted(metric.only_with)}" if metric.only_with else ""
        pages += f", without {_quoted(metric.unless)}" if metric.unless else ""
        pages += f", at most {' and '.join(_names(limit) for limit in metric.at_most)}" if metric.at_most else ""
    return _quoted(metric.engine_names) + where + whole + reason + pages


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
