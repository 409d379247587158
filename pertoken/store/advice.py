"""Advice tables: people, the advisor and the screens write them; the agent never does."""

from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from pertoken.store.telemetry import NAMING

metadata = MetaData(schema="advice", naming_convention=NAMING)


def _int(name: str, *, required: bool = False, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, autoincrement=False, nullable=not (required or key))


def _text(name: str, *, required: bool = False) -> Column[str]:
    return Column(name, Text, nullable=not required)


price = Table(
    "price",
    metadata,
    _int("price_id", key=True),
    _text("selector", required=True),  # cpu | gpu | words of a device's name | a device's UUID
    _int("nano_usd_per_device_hour"),  # NULL: from then on the selector has no price
    _int("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    _int("set_ts", required=True),
    _text("set_by", required=True),
    _text("note"),
    _int("seq", required=True),  # order of setting, without gaps: the later of two from the same minute counts
)
recommendation = Table(
    "recommendation",
    metadata,
    _int("recommendation_id", key=True),
    _text("rule_id", required=True),
    _int("deployment_id"),  # NULL for a lever wider than one deployment
    _text("state", required=True),  # OPEN | BLOCKED | REFUSED | FAILED | EXPIRED
    _text("title", required=True),
    _text("reason"),  # why blocked, refused or failed
    _text("body", required=True),  # JSON: changes, commands, undo, estimate, evidence, assumptions
    _int("bankable_nano_usd_month"),
    _int("capacity_nano_usd_month"),
    _int("created_ts", required=True),
    _int("updated_ts", required=True),
    _int("version", required=True),  # optimistic: an update names the version it read
    # With rule_id its identity:
    _text("target_kind"),  # service | deployment | host | fleet | load
    _text("target_key"),  # name of a service, id of a deployment or host
    _int("life"),  # how often it was proposed anew after it had come to an end, from 1
)
refusal = Table(
    "refusal",
    metadata,
    _int("recommendation_id", key=True),
    Column("code", Text, primary_key=True),  # lower-case words joined by hyphens
    _text("reason", required=True),
    _int("since_ts", required=True),
)
"""Why a rule does not propose something for a target; it may stand beside an open recommendation."""
recommendation_event = Table(
    "recommendation_event",
    metadata,
    _int("recommendation_id", key=True),
    _int("version", key=True),
    _int("ts", required=True),
    _text("from_state"),
    _text("to_state", required=True),
    _text("who", required=True),
    _text("why", required=True),
)
