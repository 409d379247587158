"""Commands that change a service as a whole: its replicas, its hours, and its demand."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.advisor.changes.purchases import Step
from pertoken.advisor.changes.title import DEMAND
from pertoken.advisor.groups import Chosen, hours, replica_words
from pertoken.state.diff import Change
from pertoken.state.fleet import Fleet
from pertoken.state.service import FEWEST, HOURS_OF_WEEK, Quantity, Schedule
from pertoken.units import counted

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ON, OFF, ASLEEP = "on", "off", "asleep"


@dataclass(frozen=True, slots=True)
class Timer:
    """A moment of the week, UTC, at which a service changes."""

    days: tuple[int, ...]
    """0 is Monday."""
    hour: int
    to: str | int
    """`on` (as without a schedule), `off`, `asleep`, or a number of replicas."""

    @property
    def calendar(self) -> str:
        """Time of week as a value of `OnCalendar=` of systemd."""
        return f"{_spans(self.days)} *-*-* {self.hour:02}:00:00 UTC".removeprefix("Mon..Sun ")

    @property
    def cron(self) -> str:
        """Time of week in the notation of cron and Kubernetes, time zone UTC; day 0 is Sunday."""
        days = ",".join(str((day + 1) % 7) for day in self.days) if len(self.days) < len(DAYS) else "*"
        return f"0 {self.hour} * * {days}"


def timers(schedule: Schedule) -> tuple[Timer, ...]:
    """Return the timers of a schedule, by hour of the day; empty for one that never changes."""
    counts = dict(schedule.replicas)
    states = [_state(hour, schedule, counts) for hour in range(HOURS_OF_WEEK)]
    moments: dict[tuple[int, str | int], list[int]] = {}
    for hour, state in enumerate(states):
        if state != states[hour - 1]:
            moments.setdefault((hour % 24, state), []).append(hour // 24)
    return tuple(Timer(tuple(days), hour, to) for (hour, to), days in sorted(moments.items(), key=_order))


def timer_commands(service: str, schedule: Schedule, replicas: int) -> Iterator[str]:
    """Yield the action of each timer of a service with this number of replicas."""
    for timer in timers(schedule):
        count = {ON: replicas, OFF: 0}.get(str(timer.to), timer.to)
        if timer.to == ASLEEP:
            action = f"POST /sleep?level=1 to each server of {service} (vLLM; others: see the rule's page)"
        elif timer.to == ON and schedule.asleep and not schedule.off and not schedule.replicas:
            action = f"POST /wake_up to each server of {service}"
        else:
            fewer = isinstance(count, int) and count < replicas
            hosts = "then give unused hosts back" if fewer else "start their hosts first"
            action = f"kubectl scale deployment/{service} --replicas={count}, or start and stop its servers; {hosts}"
        yield f"systemd timer OnCalendar={timer.calendar} (Kubernetes CronJob: {timer.cron}): {action}"


def _state(hour: int, schedule: Schedule, counts: dict[int, int]) -> str | int:
    if hour in schedule.off:
        return OFF
    return ASLEEP if hour in schedule.asleep else counts.get(hour, ON)


def _order(moment: tuple[tuple[int, str | int], list[int]]) -> tuple[int, str]:
    (hour, to), _ = moment
    return hour, str(to)


def _spans(days: tuple[int, ...]) -> str:
    """Return days in systemd notation: `Mon..Fri,Sun`."""
    spans: list[list[int]] = []
    for day in days:
        if spans and spans[-1][1] == day - 1:
            spans[-1][1] = day
        else:
            spans.append([day, day])
    return ",".join(DAYS[first] if first == last else f"{DAYS[first]}..{DAYS[last]}" for first, last in spans)


def service_steps(change: Change, before: Fleet, chosen: Chosen) -> Iterator[Step]:
    """Yield the steps of one change of a service."""
    name = str(change.target)
    if change.field == "replicas":
        words = replica_words(change, before, chosen)
        if words is not None:
            old, new = words
            to = "the fewest replicas that hold its demand" if new == FEWEST else counted(int(new), "replica")
            again = counted(int(old), "replica")
            apply, undo = f"Scale {name} from {old} to {to}.", f"Scale {name} to {again} again."
            more = new.isdecimal() and int(new) > int(old)
            yield Step((apply,), retire_undone=(undo,)) if more else Step(undo=(undo,), retire=(apply,))
    elif change.field == "schedule":
        lines = timer_commands(name, change.after, len(before.service(name).deployments))
        yield Step(
            (f"Schedule {name}: {hours(change.after)}.", *lines),
            (f"Remove these timers, and schedule {name} as before: {hours(change.before)}.",),
        )
    elif change.field in DEMAND:
        yield _demand(name, change.field.partition(".")[2], change.before, change.after)


def _demand(service: str, field: str, old: Quantity | None, new: Quantity) -> Step:
    sentences = {
        "output_len": "Limit the outputs of {service} to {value:.0f} tokens on average.",
        "prompt_len": "Shorten the prompts of {service} to {value:.0f} tokens on average.",
        "response_cache_share": "Put a response cache before {service} that answers {value:.0%} of its requests.",
        "cached_share": "Order the prompts of {service} so that {value:.0%} of their tokens hit the prefix cache.",
        "requests_per_s": "Change the requests of {service} to {value:.3g} per second.",
    }
    undo = f"Remove that from {service} again" + (f" (it was {old.value:.4g})." if old is not None else ".")
    return Step((sentences[field].format(service=service, value=new.value),), (undo,))
