"""Check of what hosts ship: sizes, ranges, words, JSON and counts, as SQL within `fleet.put`.

A value outside its domain is replaced before it is stored, and a row of a roll-up outside its range is left out;
`fleet.row_fault` holds the reason, one row for each field of a host. Too many identities of a host are refused whole.
"""

import json
from collections.abc import Iterator, Mapping

from pertoken.provenance import Provenance
from pertoken.state.knobs import knobs
from pertoken.store.schema.domains import (
    DOMAINS,
    MAX_DURATION_MS,
    MAX_JSON,
    MAX_NUMBER,
    MAX_TEXT,
    Domain,
    JsonObject,
    Text,
    Whole,
)
from pertoken.store.schema.rollup_tables import HOUR, MINUTE

MAX_METRIC = 500
"""Characters of the name of a metric: a model, a team and a tenant of a gateway are in it."""
MAX_ROWS_OF_HOST = {
    "device": 4_096,
    "engine": 10_000,
    "deployment": 10_000,
    "epoch": 100_000,
    "epoch_device": 200_000,
    "capability": 50_000,
}
"""Rows that one host may have, in all its time: several times what years of restarts and changed knobs make."""
_CLAMPED = ("first_ts", "last_ts")
"""Columns that `fleet.put` itself keeps within the server's clock."""

Rule = tuple[str, str, str]
"""SQL that holds for a bad value of a row `r`, SQL of its replacement, the reason."""


def _rule(column: str, domain: Domain) -> Rule:
    value = f"r.{column}"
    match domain:
        case Whole(low, high, required):
            instead = f"least(greatest({value}, {low}), {high})" if required else "NULL"
            return f"{value} NOT BETWEEN {low} AND {high}", instead, f"must be a whole number from {low} to {high}"
        case Text(max_chars, _, words) if not words:
            too_long = f"is longer than {max_chars:,} characters"
            return f"length({value}) > {max_chars}", f"left({value}, {max_chars})", too_long
        case Text(_, _, words):
            listed = ", ".join(f"'{word}'" for word in words)
            return f"{value} NOT IN ({listed})", "NULL", f"must be one of {', '.join(words)}"
        case JsonObject(_, required):
            possible = f"fleet.possible_{'knobs' if column == 'knobs' else 'json'}({value})"
            reason = "is no JSON object, is too long, or has a value that is not possible"
            return (
                f"{possible} IS DISTINCT FROM {value}",
                f"coalesce({possible}, '{{}}')" if required else possible,
                reason,
            )


def rules() -> str:
    """Return the rules of each checked column, by table, as JSON: condition, replacement and reason."""
    checked: Mapping[str, Mapping[str, Rule]] = {
        table: {column: _rule(column, domain) for column, domain in columns.items() if column not in _CLAMPED}
        for table, columns in DOMAINS.items()
    }
    return json.dumps(checked)


def bounds() -> str:
    """Return PL/pgSQL that adds to `bounds` what holds for a row of the table `named`, by its columns `names`."""
    provenances = f"BETWEEN 0 AND {int(Provenance.BOUND)}"
    return f"""
    SELECT bounds || coalesce(string_agg(format(' AND coalesce(r.%I {provenances}, true)', c), ''), '') INTO bounds
      FROM unnest(names) c WHERE c LIKE '%provenance';
    SELECT bounds || coalesce(string_agg(format(' AND coalesce(r.%I <= %s, true)', c,
        CASE right(c, 3) WHEN '_ms' THEN {MAX_DURATION_MS} ELSE {MAX_DURATION_MS} * 1000000 END), ''), '') INTO bounds
      FROM unnest(names) c WHERE right(c, 3) IN ('_ms', '_ns');
    bounds := bounds || CASE WHEN 'bucket' = ANY (names) THEN ' AND r.bucket BETWEEN 0 AND 1000' ELSE '' END
      || CASE WHEN 'metric' = ANY (names) THEN ' AND length(r.metric) <= {MAX_METRIC}' ELSE '' END
      || CASE right(named, 3) WHEN '_1m' THEN ' AND r.ts % {MINUTE} = 0' WHEN '_1h' THEN ' AND r.ts % {HOUR} = 0'
        ELSE '' END;"""


def helpers() -> Iterator[tuple[str, str]]:
    """Yield signature and body of the functions that `fleet.put` calls."""
    language = "LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS"
    limits = ", ".join(
        f"('{name}', {knob.low}, {knob.high})" for name, knob in knobs().items() if knob.type in ("int", "float")
    )
    # What a screen parses as JSON must be an object, not nested deeper than a parser goes, with numbers it can hold.
    yield (
        "possible_json(value text)",
        f"""RETURNS text {language} $$
BEGIN
  IF length(value) <= {MAX_JSON} AND length(value) - length(translate(value, '[{{', '')) < 500
    AND jsonb_typeof(value::jsonb) = 'object' AND NOT jsonb_path_exists(value::jsonb,
      '$.** ? (@.type() == "number" && (@ > {MAX_NUMBER} || @ < -{MAX_NUMBER}))') THEN
    RETURN value;
  END IF;
  RETURN NULL;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN RETURN NULL;
END $$""",
    )
    yield (
        "possible_knobs(value text)",
        f"""RETURNS text {language} $$
DECLARE impossible text[]; object jsonb;
BEGIN
  object := fleet.possible_json(value)::jsonb;
  SELECT array_agg(e.key) INTO impossible FROM jsonb_each(object) e
    LEFT JOIN (VALUES {limits}) k(name, low, high) ON k.name = e.key
    WHERE length(e.key) > {MAX_TEXT} OR length(e.value::text) > {MAX_JSON // 2} OR (k.name IS NOT NULL
      AND CASE jsonb_typeof(e.value) WHEN 'null' THEN false
        WHEN 'number' THEN (e.value::text)::numeric NOT BETWEEN k.low AND k.high ELSE true END);
  RETURN CASE WHEN object IS NULL THEN NULL WHEN impossible IS NULL THEN value
    ELSE (object - impossible)::text END;
END $$""",
    )
    allowed = " ".join(f"WHEN '{table}' THEN {rows_n}" for table, rows_n in MAX_ROWS_OF_HOST.items())
    yield (
        "refuse_too_many(named text)",
        f"""RETURNS void {language} $$
DECLARE allowed bigint := CASE named {allowed} END; stored bigint;
BEGIN
  IF allowed IS NULL THEN
    RETURN;
  END IF;
  EXECUTE format('SELECT max(n) FROM (SELECT count(*) AS n FROM telemetry.%1$I t %2$s GROUP BY %3$s) x', named,
    CASE named
      WHEN 'epoch' THEN 'JOIN telemetry.deployment o USING (deployment_id)'
      WHEN 'epoch_device' THEN
        'JOIN telemetry.epoch USING (epoch_id) JOIN telemetry.deployment o USING (deployment_id)'
      WHEN 'capability' THEN 'JOIN fleet.host_of o ON o.id = t.owner_id' ELSE 'JOIN fleet.own_host o USING (host_id)'
    END || ' WHERE o.host_id IN (SELECT host_id FROM fleet.own_host)', 'o.host_id') INTO stored;
  IF stored > allowed THEN
    RAISE program_limit_exceeded USING MESSAGE = format(
      'a host may have %s rows of %s, and this one has %s: what makes a new one again and again?',
      allowed, named, stored);
  END IF;
END $$""",
    )
    yield (
        "note_refused(named text, names text[], types text[], columns text[], faults text)",
        f"""RETURNS void {language} $$
DECLARE owner text := CASE WHEN 'host_id' = ANY (names) THEN 'r.host_id'
  WHEN named = 'epoch' THEN '(SELECT d.host_id FROM telemetry.deployment d WHERE d.deployment_id = r.deployment_id)'
  WHEN named IN ('epoch_device', 'histogram_set') THEN 'NULL::bigint'
  ELSE format('(SELECT min(o.host_id) FROM fleet.host_of o WHERE o.id = r.%I)', names[1]) END;
BEGIN
  EXECUTE format('INSERT INTO fleet.row_fault AS f (host_id, field, reason, owner_id, first_ts, last_ts, count) '
    'SELECT host_id, field, min(reason), max(owner_id), $2, $2, count(*) FROM (SELECT %s AS host_id, r.%I AS owner_id, '
    'x.field, x.reason FROM unnest(%s) r(%s) CROSS JOIN LATERAL (VALUES %s) x(field, reason, bad) WHERE x.bad) refused '
    'WHERE host_id IS NOT NULL GROUP BY host_id, field ON CONFLICT (host_id, field) DO UPDATE SET '
    'reason = excluded.reason, owner_id = excluded.owner_id, last_ts = excluded.last_ts, '
    'count = f.count + excluded.count', owner, names[1],
    (SELECT string_agg(format('$1[%s]::%s[]', i, type), ', ' ORDER BY i) FROM unnest(types) WITH ORDINALITY y(type, i)),
    (SELECT string_agg(quote_ident(name), ', ' ORDER BY i) FROM unnest(names) WITH ORDINALITY y(name, i)),
    faults) USING columns, fleet.now_ts();
END $$""",
    )
