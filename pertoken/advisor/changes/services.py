"""Commands that change a service as a whole: its replicas, its hours, and its demand."""

from collections.abc import Iterator

from pertoken.advisor.changes.purchases import Step
from pertoken.advisor.changes.timers import timer_commands
from pertoken.advisor.changes.title import DEMAND
from pertoken.advisor.groups import Chosen, hours, replica_words
from pertoken.state.demand import Quantity
from pertoken.state.diff import Change
from pertoken.state.fleet import Fleet
from pertoken.state.service import FEWEST
from pertoken.units import counted


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
