"""Tables that only a fleet's server has: who may write which host, how far each has shipped, and what is kept."""

from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from pertoken.store.telemetry import NAMING

metadata = MetaData(schema="fleet", naming_convention=NAMING)
AGENT, READER, ADVISOR = "pertoken_agent", "pertoken_reader", "pertoken_advisor"
"""Group roles: members write their own hosts' telemetry, read everything, keep advice."""


def _int(name: str, *, required: bool = False, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, autoincrement=False, nullable=not (required or key))


def _text(name: str, *, required: bool = False, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=not (required or key))


agent = Table("agent", metadata, _text("role_name", key=True), _int("most_hosts", required=True))
enrolment = Table(
    "enrolment", metadata, _int("host_id", key=True), _text("role_name", required=True), _int("since_ts", required=True)
)
shipped = Table(
    "shipped",
    metadata,
    _int("spool_id", key=True),  # of the host's database; another file begins anew
    _int("host_id", required=True),
    _int("batch", required=True),  # counts up by one: a batch that does not follow the one before is refused
    _int("seq", required=True),  # all marks up to this one are here
    _int("rows_n", required=True),  # of the last batch, with the CRC-32 of what was sent
    _int("crc32", required=True),
    _int("checked_ts", required=True),  # everything from here on was compared at least once
    _int("shipped_ts", required=True),
)
raw_request = Table(
    "raw_request",
    metadata,
    _int("request_id", key=True),
    _int("host_id", required=True),
    _int("start_ts", required=True),
    _int("end_ts", required=True),
    _text("asked_by", required=True),
    _int("asked_ts", required=True),
    _int("done_ts"),
    _int("rows_n"),
    _text("note"),  # what could not be sent, and why
)
kept = Table("kept", metadata, _text("resolution", key=True), _int("age_s", required=True))  # raw | 1m | 1h
