"""A source in which every name is hostile or careless."""

from dataclasses import replace

from tests.tui.reports import ADVICE, CHAT, RICH, TENANTS, FixedSource, device, host, use
from tests.tui.studies import RULES

NAMES = (
    "[/b][red]markup[@click=app.quit]",
    "esc\x1b[31m\x1b]0;title\x07",
    "rtl\u202eledom\u2067",
    "模型宽字符的名字",
    "🦙👩‍👩‍👧‍👦 emoji",
    "n" * 300,
)


def hostile() -> FixedSource:
    hosts = tuple(host(n, name) for n, name in enumerate(NAMES, 1))
    report = replace(
        RICH,
        hosts=hosts,
        uses=tuple(use(host, (host.name,)) for host in hosts),
        devices=tuple(
            replace(device(20 + n, name, 0, (name,)), name=name, nano_usd_per_hour=None) for n, name in enumerate(NAMES)
        ),
        deployments=tuple(
            replace(CHAT, deployment_id=n, model=name, host=name, devices=(name,)) for n, name in enumerate(NAMES)
        ),
        events=tuple(replace(RICH.events[0], message=name) for name in NAMES),
        hints=(),
    )
    tenants = replace(TENANTS, lines=tuple(replace(TENANTS.lines[0], name=name) for name in NAMES))
    advice = tuple(replace(row, title=name, target=name) for row, name in zip(ADVICE, NAMES, strict=False))
    rules = tuple(
        replace(
            RULES[n % len(RULES)],
            entry=replace(RULES[n % len(RULES)].entry, id=name, title=name, origin=name),
            page=f"{name}: {name}\n{name}",
        )
        for n, name in enumerate(NAMES)
    )
    return FixedSource(report, advice, bill=tenants, listed=rules)
