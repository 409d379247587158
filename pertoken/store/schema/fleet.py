"""Tables that only a fleet's server has: who may write which host, how far each has shipped, and what is kept."""

from sqlalchemy import MetaData, Table

from pertoken.store.schema.telemetry import NAMING, integer, text

metadata = MetaData(schema="fleet", naming_convention=NAMING)
AGENT, READER, ADVISOR = "pertoken_agent", "pertoken_reader", "pertoken_advisor"
"""Group roles: members ship their own hosts' telemetry, read everything, keep advice."""
ID_TAKEN = "PT001"
"""SQLSTATE of a refused batch whose ids, listed in the error's detail, belong to another host."""
LEASE_S = 300
"""How long after its last batch a host is not taken over by a machine that ships a copy of its database."""

agent = Table("agent", metadata, text("role_name", key=True), integer("most_hosts", required=True))
enrolment = Table(
    "enrolment",
    metadata,
    integer("host_id", key=True),
    text("role_name", required=True),
    integer("since_ts", required=True),
)
shipped = Table(
    "shipped",
    metadata,
    integer("spool_id", key=True),  # of the host's database; another file starts again
    integer("host_id", required=True),
    integer("batch", required=True),  # counts up by one: a batch that does not follow the one before is refused
    integer("seq", required=True),  # all marks up to this one are here
    integer("rows_n", required=True),  # of the last batch, with the CRC-32 of what was sent
    integer("crc32", required=True),
    integer("checked_ts", required=True),  # everything from here on was compared at least once
    integer("shipped_ts", required=True),
    # Who shipped last, and how far the host's own chain of batches (`telemetry.batch`) had come by then: a copy of the
    # database that went another way is recognized by it.
    integer("shipper_id"),
    text("boot_id"),
    integer("chain_seq"),
    integer("chain"),
)
alias = Table(
    "alias",
    metadata,
    integer("host_id", key=True),
    integer("id", key=True),  # as the host has it: of a device, engine, deployment, epoch, event or set of buckets
    integer("stored_id", required=True),  # as the server has it, since another host has the first one
)
raw_request = Table(
    "raw_request",
    metadata,
    integer("request_id", key=True),
    integer("host_id", required=True),
    integer("start_ts", required=True),
    integer("end_ts", required=True),
    text("asked_by", required=True),
    integer("asked_ts", required=True),
    integer("done_ts"),
    integer("rows_n"),
    text("note"),  # what could not be sent, and why
)
# What hosts shipped that is not stored as it came: one row for each kind of fault of a host.
row_fault = Table(
    "row_fault",
    metadata,
    integer("host_id", key=True),
    text("field", key=True),  # table and column; the table alone where whole rows are left out
    text("reason", required=True),
    integer("owner_id"),  # id of the newest such row
    integer("first_ts", required=True),
    integer("last_ts", required=True),
    integer("count", required=True),
)
kept = Table("kept", metadata, text("resolution", key=True), integer("age_s", required=True))  # raw | 1m | 1h
