"""Functions by which agents ship: the only way in for a login of `pertoken_agent`, which has no right on any table.

Each runs with its owner's rights (SECURITY DEFINER) over a fixed search path and decides by `session_user` alone. They
refuse snapshots that are kept over statements (REPEATABLE READ): a check there could rest on what is gone since.

Ids are hashes of natural keys, so that a GPU that moves, or a host that pretends, brings ids that another host has
already. `fleet.put` refuses those with `ID_TAKEN`, and `fleet.rename` gives the host ids of its own for them, drawn by
the server: nobody can take or block an id of another host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy import Table

from pertoken.provenance import Provenance
from pertoken.state.deployment import knobs
from pertoken.store.schema import telemetry as t
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
from pertoken.store.schema.fleet import AGENT, ID_TAKEN, LEASE_S
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.rollup import ROLLUPS

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


IDENTITIES = (t.host, t.device, t.engine, t.deployment, t.epoch, t.event)
"""Tables whose rows have a host, themselves or through another row."""
UNTIMED = (*IDENTITIES, t.epoch_device, t.histogram_set, t.capability)
TIMED = (
    t.agent_sample,
    *(rollup.samples for rollup in ROLLUPS),
    *(table for rollup in ROLLUPS for table in rollup.tables.values()),
)
MAX_AHEAD_S = 86_400
"""Rows later than the server's clock by more than this are not stored: they would be a wrong clock's."""
CONTESTED_MS = 1_000
"""How long to wait for a transaction of another login that holds an id before taking another id."""

_OWN = "host_id IN (SELECT host_id FROM fleet.own_host)"
_VIEWS = {
    "own_host": "SELECT host_id FROM fleet.enrolment WHERE role_name = session_user",
    "own_device": f"SELECT device_id FROM telemetry.device WHERE {_OWN}",
    "own_engine": f"SELECT engine_id FROM telemetry.engine WHERE {_OWN}",
    "own_deployment": f"SELECT deployment_id FROM telemetry.deployment WHERE {_OWN}",
    "own_epoch": f"SELECT epoch_id FROM telemetry.epoch JOIN telemetry.deployment USING (deployment_id) WHERE {_OWN}",
    "own_event": f"SELECT event_id FROM telemetry.event WHERE {_OWN}",
    "own_owner": "SELECT host_id AS owner_id FROM fleet.own_host UNION ALL SELECT device_id FROM fleet.own_device "
    "UNION ALL SELECT engine_id FROM fleet.own_engine",
    "host_of": "SELECT device_id AS id, host_id FROM telemetry.device "
    "UNION ALL SELECT engine_id, host_id FROM telemetry.engine "
    "UNION ALL SELECT deployment_id, host_id FROM telemetry.deployment "
    "UNION ALL SELECT epoch_id, host_id FROM telemetry.epoch JOIN telemetry.deployment USING (deployment_id) "
    "UNION ALL SELECT event_id, host_id FROM telemetry.event UNION ALL SELECT host_id, host_id FROM fleet.enrolment",
}
"""Read by the functions, with the rights of their owner; by `session_user`, who logged in."""
_LOOKUPS = (
    ("device", "host_id"),
    ("engine", "host_id"),
    ("deployment", "host_id"),
    ("epoch", "deployment_id"),
    ("event", "host_id"),
)

_INNER = "LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS"
_ENTRY = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '30s' AS"

_HELPERS = {
    "guard()": f"""RETURNS void {_INNER} $$
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE feature_not_supported USING MESSAGE = 'hosts ship in READ COMMITTED transactions only';
  END IF;
END $$""",
    "now_ts()": f"""RETURNS bigint {_INNER} $$ BEGIN RETURN extract(epoch FROM clock_timestamp())::bigint; END $$""",
    "is_bounds(value text)": f"""RETURNS boolean {_INNER} $$
DECLARE bounds float8[];
BEGIN
  bounds := ('{{' || value || '}}')::float8[];
  RETURN cardinality(bounds) BETWEEN 1 AND 1000 AND array_ndims(bounds) = 1 AND NOT EXISTS (
    SELECT FROM generate_subscripts(bounds, 1) i
    WHERE bounds[i] IS NULL OR bounds[i] = 'NaN' OR bounds[i] <= bounds[i - 1]);
EXCEPTION WHEN data_exception THEN RETURN false;
END $$""",
    "refuse_anothers(ids bigint[])": f"""RETURNS void {_INNER} $$
DECLARE taken bigint[];
BEGIN
  SELECT array_agg(DISTINCT o.id) INTO taken FROM fleet.host_of o
    WHERE o.id = ANY (ids) AND o.host_id NOT IN (SELECT host_id FROM fleet.own_host);
  IF taken IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '{ID_TAKEN}', MESSAGE = 'ids of another host', DETAIL = array_to_string(taken, ',');
  END IF;
END $$""",
    "must_own(kind text, ids bigint[], nobodys boolean)": f"""RETURNS void {_INNER} $$
DECLARE others bigint[];
BEGIN
  EXECUTE format('SELECT array_agg(i) FROM (SELECT DISTINCT i FROM unnest($1) i WHERE NOT ($2 AND i = 0)) x '
    'WHERE NOT EXISTS (SELECT FROM fleet.own_%1$s o WHERE o.%1$s_id = i)', kind) INTO others USING ids, nobodys;
  IF others IS NOT NULL THEN
    IF kind <> 'host' THEN
      PERFORM fleet.refuse_anothers(others);
    END IF;
    RAISE insufficient_privilege USING MESSAGE =
      'rows of a ' || kind || ' that login ' || session_user || ' does not ship: ' || others[1];
  END IF;
END $$""",
}
"""Called by entries alone."""

_ENTER = f"""(spool bigint, hosts bigint[]) RETURNS jsonb {_ENTRY} $$
DECLARE allowed bigint; other text; mine fleet.shipped;
BEGIN
  PERFORM fleet.guard();
  IF EXISTS (SELECT FROM unnest(hosts) h WHERE h NOT IN (SELECT host_id FROM fleet.own_host)) THEN
    SELECT most_hosts INTO allowed FROM fleet.agent WHERE role_name = session_user FOR UPDATE;
    IF allowed IS NULL THEN
      RAISE insufficient_privilege USING MESSAGE =
        'login ' || session_user || ' is not enrolled here: run pertoken db enroll ' || session_user;
    END IF;
    INSERT INTO fleet.enrolment (host_id, role_name, since_ts)
      SELECT h, session_user, fleet.now_ts() FROM unnest(hosts) h ON CONFLICT DO NOTHING;
    SELECT role_name INTO other FROM fleet.enrolment
      WHERE host_id = ANY (hosts) AND role_name <> session_user LIMIT 1;
    IF FOUND THEN
      RAISE insufficient_privilege USING MESSAGE =
        'this host is shipped by the login ' || other || ' already: use that one, or pertoken db disown the host';
    END IF;
    IF (SELECT count(*) FROM fleet.own_host) > allowed THEN
      RAISE insufficient_privilege USING MESSAGE =
        'login ' || session_user || ' ships ' || allowed || ' host(s), which is all it may: pertoken db enroll '
        || session_user || ' --hosts N raises that';
    END IF;
  END IF;
  INSERT INTO fleet.shipped (spool_id, host_id, batch, seq, rows_n, crc32, checked_ts, shipped_ts)
    VALUES (spool, hosts[cardinality(hosts)], 0, 0, 0, 0, 0, fleet.now_ts()) ON CONFLICT (spool_id) DO NOTHING;
  SELECT * INTO mine FROM fleet.shipped WHERE spool_id = spool FOR UPDATE;
  IF EXISTS (SELECT FROM fleet.enrolment WHERE host_id = mine.host_id AND role_name <> session_user) THEN
    RAISE insufficient_privilege USING MESSAGE = 'this database is shipped by another login already';
  END IF;
  UPDATE fleet.shipped SET host_id = hosts[cardinality(hosts)]
    WHERE spool_id = spool AND host_id <> hosts[cardinality(hosts)];
  RETURN jsonb_build_object(
    'schema', (SELECT version_num FROM telemetry.alembic_version),
    'batch', mine.batch, 'seq', mine.seq, 'checked_ts', mine.checked_ts,
    'shipper_id', mine.shipper_id, 'boot_id', mine.boot_id, 'chain_seq', mine.chain_seq, 'chain', mine.chain,
    'leased', fleet.now_ts() - mine.shipped_ts < {LEASE_S},
    'now_ts', fleet.now_ts(),
    'ages', (SELECT jsonb_object_agg(resolution, age_s) FROM fleet.kept),
    'aliases', (SELECT coalesce(jsonb_object_agg(id, stored_id), '{{}}') FROM fleet.alias WHERE host_id = ANY (hosts)));
END $$"""

_TAKE = f"""(spool bigint, shipper bigint, boot text, anew boolean, after bigint) RETURNS bigint {_ENTRY} $$
DECLARE found_batch bigint;
BEGIN
  PERFORM fleet.guard();
  UPDATE fleet.shipped SET shipper_id = shipper, boot_id = boot, shipped_ts = fleet.now_ts(),
      seq = CASE WHEN anew THEN 0 ELSE seq END, checked_ts = CASE WHEN anew THEN 0 ELSE checked_ts END,
      batch = CASE WHEN anew THEN greatest(batch, after) + 1 ELSE batch END
    WHERE spool_id = spool AND {_OWN} RETURNING batch INTO found_batch;
  RETURN found_batch;
END $$"""

_ADVANCE = f"""(spool bigint, shipper bigint, after bigint, mark bigint, rows_sent bigint, crc bigint,
    chain_at bigint, chain_is bigint) RETURNS boolean {_ENTRY} $$
BEGIN
  PERFORM fleet.guard();
  UPDATE fleet.shipped SET batch = batch + 1, seq = greatest(seq, mark), rows_n = rows_sent, crc32 = crc,
      chain_seq = chain_at, chain = chain_is, shipped_ts = fleet.now_ts()
    WHERE spool_id = spool AND shipper_id = shipper AND batch = after AND {_OWN};
  RETURN FOUND;
END $$"""

_NOTE_CHECKED = f"""(spool bigint, shipper bigint, checked bigint) RETURNS void {_ENTRY} $$
BEGIN
  PERFORM fleet.guard();
  UPDATE fleet.shipped SET checked_ts = CASE checked_ts WHEN 0 THEN checked ELSE least(checked_ts, checked) END
    WHERE spool_id = spool AND shipper_id = shipper AND {_OWN};
END $$"""

_RENAME = f"""(host bigint, ids bigint[]) RETURNS jsonb {_ENTRY} $$
BEGIN
  PERFORM fleet.guard();
  PERFORM fleet.must_own('host', ARRAY[host], false);
  INSERT INTO fleet.alias (host_id, id, stored_id)
    SELECT host, i, ('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
    FROM (SELECT DISTINCT i FROM unnest(ids) i) x ON CONFLICT DO NOTHING;
  RETURN (SELECT jsonb_object_agg(id, stored_id) FROM fleet.alias WHERE host_id = host AND id = ANY (ids));
END $$"""

_REQUESTS = f"""(hosts bigint[]) RETURNS TABLE (id bigint, starts bigint, ends bigint) {_ENTRY} $$
BEGIN
  RETURN QUERY SELECT request_id, start_ts, end_ts FROM fleet.raw_request
    WHERE done_ts IS NULL AND host_id = ANY (hosts) AND {_OWN} ORDER BY request_id;
END $$"""

_ANSWERED = f"""(request bigint, rows_sent bigint, remark text) RETURNS void {_ENTRY} $$
BEGIN
  UPDATE fleet.raw_request SET done_ts = fleet.now_ts(), rows_n = rows_sent, note = remark
    WHERE request_id = request AND {_OWN};
END $$"""


def _names(tables: Iterable[Table]) -> str:
    return "'{" + ",".join(table.name for table in tables) + "}'::text[]"


def _quoted(tables: Iterable[Table]) -> str:
    return ", ".join(f"'{table.name}'" for table in tables)


_OWNED = _quoted(IDENTITIES)
_SHARES = _quoted(
    table for rollup in ROLLUPS if rollup.name == "share" for table in (rollup.samples, *rollup.tables.values())
)


_SUMS = f"""(named text, names text[], owners bigint[], since bigint, until bigint, span bigint)
    RETURNS TABLE (at bigint, n bigint, total numeric) {_ENTRY} $$
DECLARE kind text; columns text;
BEGIN
  PERFORM fleet.guard();
  IF named <> ALL ({_names(TIMED)}) THEN
    RAISE insufficient_privilege USING MESSAGE = named || ' is not shipped';
  END IF;
  SELECT left(a.attname, -3) INTO kind FROM pg_attribute a
    WHERE a.attrelid = ('telemetry.' || quote_ident(named))::regclass AND a.attname = names[1]
      AND a.attname IN ('device_id', 'epoch_id', 'host_id');
  PERFORM fleet.must_own(kind, owners, false);
  SELECT string_agg(format('coalesce(%I::text, ''~'')', c), ', ' ORDER BY i) INTO columns
    FROM unnest(names) WITH ORDINALITY x(c, i);
  RETURN QUERY EXECUTE format(
    'SELECT ts / $1 * $1, count(*), sum((''x'' || left(encode(sha256(convert_to(concat_ws('','', %s), ''UTF8'')), '
    '''hex''), 15))::bit(60)::bigint) FROM telemetry.%I WHERE %I = ANY ($2) AND ts >= $3 AND ts < $4 GROUP BY 1',
    columns, named, names[1]) USING span, owners, since, until;
END $$"""

# Names stand in the order of the sender's columns, so that an older agent may lack the newest, which come last.
_PUT = f"""(named text, names text[], again boolean, columns text[]) RETURNS SETOF text {_ENTRY} $$
DECLARE
  target regclass; timed boolean; keys text[]; types text[]; command text; conflict text; changes text; bounds text;
  now_ts bigint := fleet.now_ts();
  ids bigint[]; faults text;
  rules CONSTANT jsonb := $rules${rules()}$rules$;
BEGIN
  PERFORM fleet.guard();
  timed := named = ANY ({_names(TIMED)});
  IF NOT timed AND named <> ALL ({_names(UNTIMED)}) THEN
    RAISE insufficient_privilege USING MESSAGE = named || ' is not shipped';
  END IF;
  target := ('telemetry.' || quote_ident(named))::regclass;
  SELECT array_agg(a.attname) INTO keys FROM pg_index x
    JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)
    WHERE x.indrelid = target AND x.indisprimary;
  SELECT array_agg(a.atttypid::regtype::text ORDER BY i) INTO types FROM unnest(names) WITH ORDINALITY c(name, i)
    LEFT JOIN pg_attribute a ON a.attrelid = target AND a.attname = c.name AND a.attnum > 0 AND NOT a.attisdropped;
  IF cardinality(names) <> cardinality(columns) OR array_position(types, NULL) IS NOT NULL THEN
    RAISE undefined_column USING MESSAGE = named || ': other columns than are here';
  END IF;

  FOR i IN 1 .. cardinality(names) LOOP
    CONTINUE WHEN names[i] NOT IN ('host_id', 'device_id', 'engine_id', 'deployment_id', 'epoch_id', 'owner_id',
      'parent_id', 'subject_id') OR (names[i] = named || '_id' AND named <> 'host');
    ids := columns[i]::bigint[];
    IF names[i] IN ('parent_id', 'subject_id') THEN
      PERFORM fleet.refuse_anothers(ids);
    ELSE
      PERFORM fleet.must_own(left(names[i], -3), ids, names[i] = 'epoch_id' AND named IN ({_SHARES}));
    END IF;
  END LOOP;

  SELECT string_agg(format('%1$I = %2$s', c, CASE c WHEN 'first_ts' THEN 'least(excluded.first_ts, t.first_ts)'
      ELSE 'excluded.' || quote_ident(c) END), ', ') INTO changes
    FROM unnest(names) c WHERE c <> ALL (keys);
  conflict := CASE
    -- Ticks and definitions never change.
    WHEN changes IS NULL OR named = 'histogram_set' OR (timed AND 'revision' <> ALL (names)) THEN 'NOTHING'
    ELSE 'UPDATE SET ' || changes END
    || CASE WHEN timed AND 'revision' = ANY (names)
         THEN ' WHERE excluded.revision ' || CASE WHEN again THEN '>=' ELSE '>' END || ' t.revision'
       WHEN named IN ('device', 'engine', 'deployment', 'event')
         THEN ' WHERE t.host_id IN (SELECT host_id FROM fleet.own_host)'
       WHEN named = 'epoch' THEN ' WHERE t.deployment_id IN (SELECT deployment_id FROM fleet.own_deployment)'
       ELSE '' END;
  IF timed THEN
    SELECT string_agg('r.' || quote_ident(name), ', ') INTO bounds FROM unnest(names, types) c(name, type)
      WHERE type IN ('bigint', 'integer', 'smallint') AND name <> ALL (keys);
    bounds := format('r.ts BETWEEN 0 AND %s AND greatest(%s) <= {MAX_NUMBER} AND least(%s) >= 0',
      now_ts + {MAX_AHEAD_S}, bounds, bounds);{bounds()}
  ELSIF named = 'histogram_set' THEN
    bounds := 'fleet.is_bounds(r.upper_bounds)';
  END IF;
  SELECT format('INSERT INTO telemetry.%I AS t (%s) SELECT %s FROM unnest(%s) r(%s)%s ON CONFLICT (%s) DO %s', named,
      string_agg(quote_ident(name), ', ' ORDER BY i),
      string_agg(CASE
        WHEN name IN ('last_ts', 'ts') AND NOT timed THEN format('least(r.%I, %s)', name, now_ts)
        WHEN name = 'first_ts' THEN format('least(greatest(r.first_ts, 1000000000), %s)', now_ts)
        WHEN rules #> ARRAY[named, name] IS NOT NULL THEN format('CASE WHEN %s THEN %s ELSE r.%I END',
          rules #>> ARRAY[named, name, '0'], rules #>> ARRAY[named, name, '1'], name)
        ELSE 'r.' || quote_ident(name) END, ', ' ORDER BY i),
      string_agg(format('$1[%s]::%s[]', i, type), ', ' ORDER BY i),
      string_agg(quote_ident(name), ', ' ORDER BY i),
      coalesce(' WHERE ' || bounds, ''),
      (SELECT string_agg(quote_ident(k), ', ') FROM unnest(keys) k), conflict)
    INTO command FROM unnest(names, types) WITH ORDINALITY c(name, type, i);

  SELECT string_agg(format('(%L, %L, %s)', named || '.' || name, rules #>> ARRAY[named, name, '2'],
      rules #>> ARRAY[named, name, '0']), ', ') INTO faults
    FROM unnest(names) name WHERE rules #> ARRAY[named, name] IS NOT NULL;
  IF timed THEN
    faults := format('(%L, ''has values or times that are not possible'', NOT (%s))', named, bounds);
  END IF;
  IF faults IS NOT NULL THEN
    PERFORM fleet.note_refused(named, names, types, columns, faults);
  END IF;

  IF timed THEN
    SELECT command || format(' RETURNING ROW(%s)::text', string_agg(
        format('t.%I', name) || CASE type WHEN 'boolean' THEN '::int' ELSE '' END, ', ' ORDER BY i))
      INTO command FROM unnest(names, types) WITH ORDINALITY c(name, type, i);
    RETURN QUERY EXECUTE command USING columns;
    RETURN;
  END IF;

  -- Waiting for the table is one thing; for a row that another login inserted and does not commit another.
  EXECUTE format('LOCK TABLE telemetry.%I IN ROW EXCLUSIVE MODE', named);
  ids := columns[array_position(names, keys[1])]::bigint[];
  BEGIN
    PERFORM set_config('lock_timeout', '{CONTESTED_MS}', true);
    EXECUTE command USING columns;
  EXCEPTION WHEN lock_not_available THEN
    IF named IN ({_OWNED}) THEN
      EXECUTE format('SELECT array_agg(i) FROM unnest($1) i WHERE i NOT IN (SELECT %1$s_id FROM fleet.own_%1$s)', named)
        INTO ids USING ids;
    ELSIF named = 'histogram_set' THEN
      SELECT array_agg(i) INTO ids FROM unnest(ids) i
        WHERE i NOT IN (SELECT bucket_set_id FROM telemetry.histogram_set);
    ELSE
      ids := NULL;
    END IF;
    IF ids IS NULL OR named = 'host' THEN
      RAISE;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '{ID_TAKEN}', MESSAGE = 'ids that another login is about to store',
      DETAIL = array_to_string(ids, ',');
  END;
  -- After, since a row of another login may have been committed meanwhile.
  PERFORM fleet.refuse_too_many(named);
  IF named IN ({_OWNED}) THEN
    PERFORM fleet.must_own(named, ids, false);
  ELSIF named = 'histogram_set' THEN
    SELECT array_agg(s.bucket_set_id) INTO ids FROM unnest(ids, columns[array_position(names, 'upper_bounds')]::text[])
      r(id, upper_bounds) JOIN telemetry.histogram_set s ON s.bucket_set_id = r.id
      WHERE s.upper_bounds <> r.upper_bounds;
    IF ids IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '{ID_TAKEN}', MESSAGE = 'sets of other bounds',
        DETAIL = array_to_string(ids, ',');
    END IF;
  END IF;
END $$"""
ENTRIES = {
    "enter": _ENTER,
    "take": _TAKE,
    "advance": _ADVANCE,
    "put": _PUT,
    "rename": _RENAME,
    "sums": _SUMS,
    "note_checked": _NOTE_CHECKED,
    "requests": _REQUESTS,
    "answered": _ANSWERED,
}
"""What agents may call."""


def functions() -> Iterator[str]:
    """Yield statements that make the functions and what they read, or bring them up to date, and let agents call
    them."""
    for table, column in _LOOKUPS:
        yield f"CREATE INDEX IF NOT EXISTS fleet_{table}_{column} ON telemetry.{table} ({column})"
    yield "CREATE INDEX IF NOT EXISTS fleet_enrolment_role ON fleet.enrolment (role_name)"
    for name, query in _VIEWS.items():
        yield f"CREATE OR REPLACE VIEW fleet.{name} AS {query}"
    for signature, rest in (*_HELPERS.items(), *helpers()):
        yield f"CREATE OR REPLACE FUNCTION fleet.{signature} {rest}"
    for name, rest in ENTRIES.items():
        yield f"CREATE OR REPLACE FUNCTION fleet.{name}{rest}"
    yield "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA fleet FROM PUBLIC"
    for name in ENTRIES:
        yield f"GRANT EXECUTE ON FUNCTION fleet.{name} TO {AGENT}"
