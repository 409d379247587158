"""Advice tables: people, the advisor and the screens write them; the agent never does."""

from sqlalchemy import MetaData, Table

from pertoken.store.schema.table_parts import NAMING, integer, text

metadata = MetaData(schema="advice", naming_convention=NAMING)

price = Table(
    "price",
    metadata,
    integer("price_id", key=True),
    text("selector", required=True),  # cpu | gpu | words of a device's name | a device's UUID
    integer("nano_usd_per_device_hour"),  # NULL: from then on the selector has no price
    integer("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    integer("set_ts", required=True),
    text("set_by", required=True),
    text("note"),
    integer("seq", required=True),  # order of setting, without gaps: the later of two from the same minute counts
)
offer = Table(
    "offer",
    metadata,
    integer("offer_id", key=True),
    text("provider", required=True),
    text("instance_type", required=True),
    text("accelerator", required=True),  # catalog name
    integer("n_devices", required=True),
    text("region", required=True),
    text("purchase", required=True),
    integer("nano_usd_per_device_hour", required=True),
    text("as_of", required=True),  # YYYY-MM-DD: when it was published at the earliest
    integer("from_ts"),  # first instant whose cost it may decide; NULL: the start of `as_of`
    text("source", required=True),
    text("confidence", required=True),
    text("note", required=True),
    integer("set_ts", required=True),
    text("set_by", required=True),
    integer("seq", required=True),  # order of import, without gaps
)
"""List prices that people imported; none is ever changed or deleted, so that past costs stay as they are."""
owned = Table(
    "owned",
    metadata,
    integer("owned_id", key=True),
    text("host", required=True),  # its name
    text("terms", required=True),  # JSON: capex_usd and what its owner states of the running cost
    integer("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    integer("set_ts", required=True),
    text("set_by", required=True),
    integer("seq", required=True),  # order of setting, without gaps
)
"""What servers of one's own cost; the newest row of a host in force counts."""
recommendation = Table(
    "recommendation",
    metadata,
    integer("recommendation_id", key=True),
    text("rule_id", required=True),
    integer("deployment_id"),  # NULL for a lever wider than one deployment
    text("state", required=True),  # OPEN | BLOCKED | REFUSED | FAILED | EXPIRED
    text("title", required=True),
    text("reason"),  # why blocked, refused or failed
    text("body", required=True),  # JSON: changes, commands, undo, estimate, evidence, assumptions
    integer("bankable_nano_usd_month"),
    integer("capacity_nano_usd_month"),
    integer("created_ts", required=True),
    integer("updated_ts", required=True),
    integer("version", required=True),  # optimistic: an update names the version it read
    # With rule_id its identity:
    text("target_kind"),  # service | deployment | host | fleet | load
    text("target_key"),  # name of a service, id of a deployment or host
    integer("life"),  # how often it was proposed anew after it had come to an end, from 1
)
refusal = Table(
    "refusal",
    metadata,
    integer("recommendation_id", key=True),
    text("code", key=True),  # lower-case words joined by hyphens
    text("reason", required=True),
    integer("since_ts", required=True),
)
"""Why a rule does not propose something for a target; it may stand beside an open recommendation."""
recommendation_event = Table(
    "recommendation_event",
    metadata,
    integer("recommendation_id", key=True),
    integer("version", key=True),
    integer("ts", required=True),
    text("from_state"),
    text("to_state", required=True),
    text("who", required=True),
    text("why", required=True),
)
