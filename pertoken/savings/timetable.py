"""Hours of the week in which a service is off or asleep."""

from pertoken.provenance import Provenance
from pertoken.savings.context import Context
from pertoken.savings.hosts import freed, whole_devices
from pertoken.savings.outcome import Outcome, same
from pertoken.state.demand import HOURS_OF_WEEK
from pertoken.state.fleet import Fleet
from pertoken.state.schedule import Schedule
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def outcome(before: Fleet, now: Service, schedule: Schedule, context: Context) -> Outcome:
    """Return what a schedule saves: hours off release whole hosts (bankable), hours asleep free devices (capacity).

    Refused where requests came in such an hour, unpriced where the window has no such hour. Raises NoPrice.
    """
    if schedule.replicas:
        return Outcome(unpriced="replicas by hour are not priced yet: schedule hours off, or hours asleep")
    quiet = schedule.off | schedule.asleep
    demand = now.demand.requests_by_hour_of_week
    unknown = [hour for hour in sorted(quiet) if demand[hour] is None]
    if unknown:
        return Outcome(unpriced=f"nothing was recorded on {_named(unknown[0])}: record a whole week first")
    served = [hour for hour in sorted(quiet) if demand[hour]]
    if served:
        rate = demand[served[0]] or 0.0
        return Outcome(infeasible=f"{rate:.2g} requests/s came on {_named(served[0])}: it is not idle then")
    others = [each for each in before.deployments if each not in now.deployments]
    without = freed(before, whole_devices(before, others), (), context)
    off, asleep = (len(hours) / HOURS_OF_WEEK for hours in (schedule.off, schedule.asleep))
    bankable = round(without.bankable * off * HOURS_PER_MONTH)
    devices = without.bankable + without.capacity
    capacity = round((without.capacity * off + devices * asleep) * HOURS_PER_MONTH)
    return Outcome(
        kept=same(before.deployments),
        bankable=(bankable, bankable, bankable),
        capacity=(capacity, capacity, capacity),
        provenance=Provenance.REPORTED,
        assumptions=("a replica starts again before the first request of the next hour",) if quiet else (),
        against=without.against,
    )


def _named(hour: int) -> str:
    return f"{DAYS[hour // 24]} at {hour % 24:02}:00 UTC"
