"""Tokens and busy time: equal to what the engines truly did, or less and marked; never more."""

import sqlite3
from collections.abc import Iterator

from tests.adversary.behaviour import Served
from tests.adversary.judge.finding import Finding
from tests.adversary.played import Played

TOKENS = ("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens")
MAX_SWAP_S = 18.0
"""For how long the tokens of a model that took the place of another in a living process may be counted for that."""
BUSY_SHARE, BUSY_S = 0.15, 1.2
"""How far stored busy time may be from an engine's own count of seconds."""
_ROWS = """FROM deployment_sample JOIN epoch USING (epoch_id) JOIN deployment USING (deployment_id)
    JOIN engine USING (engine_id)"""


def findings(played: Played, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield all that is wrong with the rows of deployments."""
    for model, served in played.served.items():
        yield from _tokens(played, connection, model, served)
        yield from _busy(played, connection, model, served)
    ((strange,),) = connection.execute(
        "SELECT COUNT(*) FROM deployment_sample WHERE observed_ms > duration_ms OR busy_ms > duration_ms OR "
        "MIN(prompt_tokens, cached_tokens, computed_tokens, generated_tokens, busy_ms) < 0"
    ).fetchall()
    if strange:
        yield Finding("tokens", f"{strange} rows are busy or observed for longer than they last, or below 0")


def stored_tokens(played: Played, connection: sqlite3.Connection) -> dict[str, int]:
    """Return generated tokens by model."""
    return {
        model: sum(tokens or 0 for (tokens,) in connection.execute(f"SELECT generated_tokens {_of(played, model)}"))
        for model in played.served
    }


def _of(played: Played, model: str) -> str:
    """Return the rows of a model that the world's own engines served."""
    ports = ", ".join(map(str, sorted(set(played.ports))))
    return f"{_ROWS} WHERE served_model = '{model}' AND port IN ({ports})"


def _tokens(played: Played, connection: sqlite3.Connection, model: str, served: Served) -> Iterator[Finding]:
    true = {
        "prompt_tokens": served.prompt,
        "cached_tokens": served.cached,
        "computed_tokens": served.prompt - served.cached,
        "generated_tokens": served.generated,
    }
    rows = connection.execute(f"SELECT complete, {', '.join(TOKENS)} {_of(played, model)}").fetchall()
    marked = any(not row["complete"] for row in rows) or _contested(played, connection, model)
    swapped = model.endswith("-swapped") or f"{model}-swapped" in played.served
    late = _late(played, model) if swapped else dict.fromkeys(TOKENS, 0)
    for name in TOKENS:
        stored = sum(row[name] or 0 for row in rows)
        if stored > true[name] + late[name]:
            yield Finding("tokens", f"{model}: {stored} {name} are stored, and only {true[name]} were served")
        if stored < true[name] - late[name] and not marked:
            yield Finding("tokens", f"{model}: {stored} {name} are stored of {true[name]} served, and no row marks it")


def _contested(played: Played, connection: sqlite3.Connection, model: str) -> bool:
    """Return whether the servers of a model share one address, and an event reports that none of them is counted."""
    if not any(engine.shared and engine.model == model for engine in played.world.engines):
        return False
    several = "SELECT COUNT(*) FROM event WHERE kind = 'engine_several_servers'"
    return bool(connection.execute(several).fetchone()[0])


def _late(played: Played, model: str) -> dict[str, int]:
    """Return tokens that may be counted for the model before, or after, while a swap is not yet seen."""
    spec = next(engine for engine in played.world.engines if model.startswith(engine.model))
    rates = spec.prompt_tok_s, spec.prompt_tok_s, spec.prompt_tok_s, spec.generated_tok_s
    return {name: round(rate * MAX_SWAP_S) for name, rate in zip(TOKENS, rates, strict=True)}


def _busy(played: Played, connection: sqlite3.Connection, model: str, served: Served) -> Iterator[Finding]:
    """Of engines that count their own seconds, and were left in peace."""
    if model == "tiny-llama":
        true_s = played.llama_busy_s
    else:
        spec = next((engine for engine in played.world.engines if engine.model == model), None)
        counts = spec is not None and spec.kind == "llama-server" and spec.key not in played.world.touched
        true_s = served.busy_s if counts else None
    seen = "SUM(CASE WHEN observed_ms >= duration_ms THEN generated_tokens ELSE 0 END), SUM(generated_tokens)"
    columns = f"SUM(busy_ms), SUM(busy_ms IS NULL), {seen}"
    ((busy_ms, unknown, seen_tokens, tokens),) = connection.execute(f"SELECT {columns} {_of(played, model)}")
    if true_s is None or busy_ms is None:
        return
    stored_s, room_s = busy_ms / 1000, BUSY_SHARE * true_s + BUSY_S
    # A row in which the agent was away has an unknown part of its work: only that of the other rows must be there.
    at_least_s = true_s * (seen_tokens or 0) / max(1, tokens or 0) - room_s
    if stored_s > true_s + room_s or (stored_s < at_least_s and not unknown):
        yield Finding("busy", f"{model}: {stored_s:.2f} s are stored, it computed for {true_s:.2f} s")
