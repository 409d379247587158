"""States of a database in which every screen is recorded, with the keys that open the screens."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pertoken.tui.options import Options, SettingLine
from tests.tui.histories import TENANTS
from tests.tui.reports import BARE, CHAT, RICH, SILENT_ADVICE, FixedSource, host, locked, use
from tests.tui.studies import PLAN
from tests.tui.whole.names import hostile

OPTIONS = Options(
    settings=lambda: (
        SettingLine("db", "/var/lib/pertoken", "/etc/pertoken/pertoken.toml", "Folder or URL of the database."),
        SettingLine("agent.interval", "10s", "", "Time between two samples."),
        SettingLine("currency.code", "USD", "", "Currency of amounts on screens and in reports."),
    )
)


@dataclass(frozen=True)
class Step:
    """One screen: the keys that open it from the previous one, and a text that it shows at 120 columns."""

    name: str
    keys: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class State:
    """A source in some state, and the screens that are recorded in it."""

    name: str
    source: Callable[[], FixedSource]
    steps: tuple[Step, ...]
    breaks: bool = False
    """Whether the database fails after the first reading."""


FULL = (
    Step("fleet", (), "run/wait"),
    Step("service", ("enter",), "Tokens, tok/s"),
    Step("device", ("escape", "tab", "enter"), "NVLink"),
    Step("events", ("escape", "E"), "restarted on gpu-b"),
    Step("jump", ("escape", "colon", *"qwen"), "Qwen/Qwen3-8B"),
    Step("columns", ("escape", "c"), "no room or no values"),
    Step("hosts", ("escape", "g"), "By host"),
    Step("host", ("enter",), "Tokens, tok/s"),
    Step("tenants", ("escape", "g"), "unattributed"),
    Step("replay", ("less_than_sign",), "REPLAY"),
    Step("savings", ("n", "2"), "Least certain"),
    Step("advice", ("down", "enter"), "Why"),
    Step("accept", ("a",), "enter"),
    Step("not-evaluated", ("escape", "escape", "tab"), "use-spot"),
)
PLANS = (
    Step("plan", ("3",), "Least certain"),
    Step("plan-step", ("down", "enter"), "bankable"),
    Step("plan-what-if", ("escape", "w"), "An empty line"),
    Step("plan-without-a-step", ("escape", "down", "space"), "[ ]"),
    Step("rules", ("4",), "use-spot"),
    Step("rule", ("enter",), "track record"),
    Step("hours", ("escape", "h"), "by hour"),
    Step("model-hours", ("enter",), "nothing recorded"),
    Step("settings", ("escape", "s"), "theme"),
    Step("keys", ("question_mark",), "Show the fleet"),
)
MODES = (
    Step("fleet", (), "Fleet"),
    Step("savings", ("2",), "Savings"),
    Step("plan", ("3",), "Plan"),
    Step("rules", ("4",), "Rules"),
    Step("hours", ("h",), "Hours"),
    Step("settings", ("s",), "theme"),
)
"""Screens that exist with any database."""
STALE = (
    Step("fleet", (), "36% observed"),
    Step("service", ("enter",), "Tokens, tok/s"),
    Step("hosts", ("escape", "g"), "By host"),
    Step("host", ("enter",), "Tokens, tok/s"),
    Step("savings", ("escape", "2"), "Least certain"),
    Step("plan", ("3",), "Least certain"),
    Step("hours", ("h",), "by hour"),
)
THOUSAND = (
    Step("hosts", (), "gpu-0001"),
    Step("filter", ("slash", *"0097"), "gpu-0097"),
    Step("last-host", ("escape", "G"), "gpu-1000"),
    Step("host", ("enter",), "Tokens, tok/s"),
)


def _stale() -> FixedSource:
    hosts = tuple(replace(host, age_s=2300) for host in RICH.hosts)
    uses = tuple(
        replace(host_use, host=line, generated_tok_s_now=None, power_w=None, nano_usd_per_hour=None, util=None)
        for host_use, line in zip(RICH.uses, hosts, strict=True)
    )
    lines = tuple(replace(line, age_s=2300, coverage=0.36) for line in RICH.deployments)
    devices = tuple(replace(device, age_s=2300) for device in RICH.devices)
    figures = replace(RICH, generated_tok_s_now=None, power_w=None, nano_usd_per_hour=None, unpriced_n=0)
    silent = replace(figures, hosts=hosts, uses=uses, deployments=lines, devices=devices)
    return FixedSource(replace(silent, bill_observed=0.36, coverage=0.36, estimated=True))


def _empty() -> FixedSource:
    nothing = replace(PLAN, steps=(), left_out=(), bankable=(0, 0, 0), capacity=(0, 0, 0), sensitivity=())
    report = replace(BARE, hosts=(), uses=(), devices=(), missing=(), unpriced_devices=())
    return FixedSource(report, (), planned=nothing, day=(), bill=replace(TENANTS, lines=()))


def _thousand() -> FixedSource:
    hosts = tuple(host(n, f"gpu-{n:04}", age_s=4 if n % 97 else 75) for n in range(1, 1001))
    uses = tuple(replace(use(host, (CHAT.model,), 8), util=host.host_id % 101 / 100) for host in hosts)
    served = tuple(replace(CHAT, deployment_id=n, host=host.name) for n, host in enumerate(hosts, 100))
    return FixedSource(replace(RICH, hosts=hosts, uses=uses, deployments=served, hints=()))


HOSTILE = (
    Step("hosts", (), "By host"),
    Step("price", ("dollar_sign",), "cost you"),
    Step("services", ("escape", "g", "g"), "run/wait"),
    Step("device", ("tab", "enter"), "Its host"),
    Step("savings", ("escape", "2"), "bankable"),
    Step("rules", ("4",), "last result"),
    Step("rule", ("enter",), "track record"),
    Step("switch", ("escape", "space"), "Switch"),
)
"""Screens with hostile names: markup, terminal sequences, direction marks, wide characters, 300 characters."""

STATES = (
    State("full", FixedSource, FULL),
    State("plan-and-rules", FixedSource, PLANS),
    State("empty", _empty, MODES),
    State("bare", lambda: FixedSource(BARE, SILENT_ADVICE), MODES[:2]),
    State("stale", _stale, STALE),
    State("error", lambda: FixedSource(error=locked), MODES),
    State("error-after-figures", FixedSource, MODES[:4], breaks=True),
    State("thousand-hosts", _thousand, THOUSAND),
    State("hostile", hostile, HOSTILE),
)
