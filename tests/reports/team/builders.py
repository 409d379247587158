"""A fleet with an owner, hostile names, and advice on it."""

from dataclasses import replace
from pathlib import Path

from pertoken.config import Settings
from pertoken.proof import verdicts
from pertoken.proof.recommendation import Edit, Moved, Recommendation, State, Variant
from pertoken.proof.stored import write
from pertoken.proof.verdicts import Verdict
from pertoken.savings.saving import Saving
from pertoken.settings.fleet import read_services
from pertoken.store.connect.location import StoreLocation
from pertoken.store.repository import AdviceRepository
from pertoken.units import NANO_USD
from tests.reports.builders import END, HOSTILE, recorded
from tests.scenario import LOW_BATCH_70B

MODEL = LOW_BATCH_70B.model
OWNED = Settings(services=read_services({"chat": {"models": [MODEL], "owner": "search"}, "other": {"owner": "ads"}}))
MONEY = (NANO_USD * 900, NANO_USD * 1000, NANO_USD * 1100)


def advice(number: int, service: str, state: State = State.OPEN) -> Recommendation:
    variant = Variant(
        str(number),
        f"{service}: {HOSTILE}",
        commands=(f"restart --model {HOSTILE}", "  second line"),
        saving=Saving(MONEY),
        touches=(f"service:{service}",),
    )
    rule, target = f"rule-{number} {HOSTILE}", f"target {service} {HOSTILE}"
    row = Recommendation(number << 32, rule, state, variant.title, target, "service", service)
    reason = f"because {HOSTILE}"
    variants = () if state is State.REFUSED else (variant,)
    return replace(
        row,
        reason=reason,
        remedy=HOSTILE,
        owner=HOSTILE,
        prices=(HOSTILE,),
        variants=variants,
        created_ts=END,
        updated_ts=END,
    )


def with_advice(folder: Path, *rows: Recommendation) -> StoreLocation:
    where = recorded(folder)
    change = Verdict(8, 9, 7, END - 3600, HOSTILE, (Edit("deployment", 7, HOSTILE, HOSTILE, HOSTILE),))
    with AdviceRepository(where).writing() as connection:
        verdicts.write(connection, [replace(change, created_ts=END - 3600)])
        write(connection, [Moved(row, "test", HOSTILE) for row in rows], {}, HOSTILE)
    return where
