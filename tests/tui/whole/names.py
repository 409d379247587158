"""A source in which every name is hostile or careless."""

from dataclasses import replace

from pertoken.window.course import Mark
from pertoken.window.timeline import Happening
from tests.tui.reports import (
    ADVICE,
    CHAT,
    COURSE,
    DAY,
    FP8,
    NOW,
    RICH,
    TENANTS,
    TIMELINE,
    FixedSource,
    device,
    host,
    use,
)
from tests.tui.studies import PLAN, RULES, STEPS

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
    advice = tuple(
        replace(
            ADVICE[2],
            recommendation_id=101 + n,
            title=name,
            target=name,
            reason=name,
            variants=(replace(FP8, title=name, commands=(name,), undo=(name,), assumptions=(name,), against=(name,)),),
        )
        for n, name in enumerate(NAMES)
    )
    steps = tuple(
        replace(STEPS[1], recommendation_id=101 + n, title=name, where=name, commands=(name,), undo=(name,))
        for n, name in enumerate(NAMES)
    )
    left_out = tuple(replace(PLAN.left_out[0], title=name, where=name, reason=name) for name in NAMES)
    marks = tuple(Mark(NOW - 600 * n - 300, "event", name) for n, name in enumerate(NAMES))
    happenings = tuple(Happening(NOW - 700 * n - 300, name) for n, name in enumerate(NAMES))
    rules = tuple(
        replace(
            RULES[n % len(RULES)],
            entry=replace(RULES[n % len(RULES)].entry, id=name, title=name, origin=name),
            page=f"{name}: {name}\n{name}",
        )
        for n, name in enumerate(NAMES)
    )
    return FixedSource(
        report,
        advice,
        bill=tenants,
        listed=rules,
        planned=replace(PLAN, steps=steps, left_out=left_out),
        day=tuple(replace(DAY[0], model=name) for name in NAMES),
        history=replace(COURSE, marks=marks[::-1]),
        recorded=replace(TIMELINE, happenings=happenings[::-1]),
    )
