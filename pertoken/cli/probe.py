"""`pertoken probe`: measure an idle inference server under a generated load."""

from __future__ import annotations

import getpass
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pertoken.access import Access, access_of
from pertoken.cli.options import Database, Progress, db_option, echo, json_option
from pertoken.errors import BadInput, StoreError
from pertoken.text.amounts import amount
from pertoken.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pertoken.advisor.probed import Probed
    from pertoken.agent.load_probe import ProbeStep, Progressing, ServerWatch
    from pertoken.agent.readings import EngineReading
    from pertoken.config import Settings
    from pertoken.evidence import OperatingPoint
    from pertoken.store.connect.location import StoreLocation

STOPPED = 3
"""Exit status if the probe ended early; the points measured until then are kept."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells define it."""


@click.command(short_help="Measure an idle inference server under a generated load.")
@click.argument("endpoint", metavar="ENDPOINT")
@click.option(
    "--seconds", type=click.FloatRange(10, 300), default=90.0, show_default=True, help="Longest time to measure."
)
@click.option("--yes", is_flag=True, help="Do not ask before sending requests.")
@click.option("--exclusive", is_flag=True, help="The server has no other client: measure without its metrics page.")
@click.option("--model", metavar="NAME", help="Model to ask for [default: the first that the server lists].")
@json_option
@db_option
def probe(
    endpoint: str, seconds: float, yes: bool, exclusive: bool, model: str | None, as_json: bool, database: Database
) -> None:
    """Measure an idle or drained replica through its OpenAI-compatible API at ENDPOINT, such as http://127.0.0.1:8000.

    Uncached prompts are sent one at a time, then batches at several context lengths. The number of requests and tokens
    is shown first, and nothing is sent before you agree. The server must have had no request for 30 seconds, by its own
    metrics. If another client uses the server, the probe ends after the requests under way, and keeps its results.

    The points are stored for the deployment recorded at that address, and calibrate its forecasts until its engine,
    driver, model or knobs change.

    Exit 3 if it ended early, 130 after Ctrl-C.
    """
    import secrets

    from pertoken.agent.load_probe import Client, run, script

    settings = database.settings()
    url = base_url(endpoint)
    watch, reading = watched(url, settings, exclusive)
    model_name = model or (reading.served_model if reading else None) or listed_model(url, settings)
    knobs = reading.knobs if reading else {}
    steps = script(positive(knobs.get("max_num_seqs")), positive(knobs.get("max_model_len")))
    where, probed, unrecorded_reason = _recorded(settings, url)
    for line in _announcement(url, model_name, steps, seconds, probed):
        echo(line, err=True)
    consent(yes)
    client = Client(url, model_name, access_to(url, settings), secrets.randbits(64))
    with Progress("Probing") as progress:
        wait_idle(watch, progress)
        started_ts = int(time.time())
        label_by_step = {step: f"Step {n} of {len(steps)}, {step.label}" for n, step in enumerate(steps, 1)}
        result = run(client, watch, steps, seconds, lambda step: progress.phase(label_by_step[step]))
    facts: dict[str, object] = {
        "engine": reading.endpoint.kind if reading else None,
        "engine_version": reading.version if reading else None,
        "model": model_name,
        "requests": result.sent.requests,
        "prompt_tokens": result.sent.prompt_tokens,
        "generated_tokens": result.sent.generated_tokens,
        "stopped": result.stopped,
        "notes": result.notes,
    }
    not_stored = _store_points(where, probed, unrecorded_reason, started_ts, url, result, facts)
    if as_json:
        echo(json.dumps(_json_values(url, started_ts, probed, not_stored, result.points, facts), indent=2))
    else:
        for line in _result_lines(result, not_stored):
            echo(line)
    if result.stopped:
        sys.exit(INTERRUPTED if result.stopped == "interrupted" else STOPPED)


def base_url(endpoint: str) -> str:
    """Return the base URL of an endpoint, without `/v1`. Raises BadInput if it is no HTTP address."""
    from pertoken.settings import values

    if "@" in endpoint:  # it is not repeated: it may hold a password
        raise BadInput("a server's address holds no user name or password; write it as http://127.0.0.1:8000")
    with_scheme = endpoint if "://" in endpoint else f"http://{endpoint}"
    try:
        return values.base_url(with_scheme.rstrip("/").removesuffix("/v1"))
    except ValueError:
        raise BadInput(f"{endpoint}: is no HTTP address; write it as http://127.0.0.1:8000") from None


def watched(url: str, settings: Settings, exclusive: bool) -> tuple[ServerWatch | None, EngineReading | None]:
    """Return a watch on the metrics page and its first reading; both None without a page, if `exclusive`."""
    from pertoken.agent.engines.reader import detect
    from pertoken.agent.load_probe import ProbeError, ServerWatch
    from pertoken.agent.scrape import RequestLimits, ScrapeError

    limits = RequestLimits.of(settings)
    try:
        watch = ServerWatch(detect(url, limits), limits)
        watch.state()
    except ScrapeError as error:
        if not exclusive or error.kind == "closed":
            hint = "" if error.kind == "closed" else "; pass --exclusive if the server has no other client"
            raise ProbeError(f"{error.message}{hint}") from None
        return None, None
    except ProbeError:
        if not exclusive:
            raise
        return None, None
    return watch, watch.reading


def wait_idle(watch: ServerWatch | None, progress: Progress) -> None:
    """Watch the server for `IDLE_S`; without a watch, return at once. Raises ProbeError if it is in use."""
    from pertoken.agent.load_probe import IDLE_S, ProbeError

    if watch is None:
        return
    try:
        watch.wait_idle(IDLE_S, progress.phase)
    except KeyboardInterrupt:
        raise ProbeError("interrupted before anything was sent") from None


def listed_model(url: str, settings: Settings) -> str:
    """Return the first model that a server lists. Raises ProbeError."""
    from pertoken.agent.load_probe import ProbeError
    from pertoken.agent.scrape import RequestLimits, ScrapeError, get

    try:
        listed = json.loads(get(f"{url}/v1/models", RequestLimits.of(settings)).body)
        return str(listed["data"][0]["id"])
    except ScrapeError as error:
        raise ProbeError(error.message) from None
    except (ValueError, LookupError, TypeError):
        raise ProbeError(f"{url}/v1/models: lists no model; name it with --model") from None


def access_to(url: str, settings: Settings) -> Access:
    """Return the credentials and TLS settings for a server."""
    return access_of(url, settings.agent_access)


def positive(value: object) -> int | None:
    """Return a knob that is a positive whole number, else None."""
    return value if isinstance(value, int) and value > 0 else None


def _recorded(settings: Settings, url: str) -> tuple[StoreLocation, Probed | None, str | None]:
    """Return the database, the deployment recorded at an address, and the reason if there is none."""
    import socket

    from pertoken.advisor.probed import probed_deployment
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    where = locate(settings.db, settings.advice)
    try:
        probed = probed_deployment(open_store(where), url, socket.gethostname(), int(time.time()))
    except StoreError as error:
        return where, None, str(error)
    return where, probed, None if probed else f"{where}: no deployment is recorded at {url}; let the agent run first"


def _announcement(
    url: str, model: str, steps: Sequence[ProbeStep], seconds: float, probed: Probed | None
) -> tuple[str, ...]:
    from pertoken.agent.load_probe import IDLE_S, cost

    idle_s, total = IDLE_S, cost(steps)
    rate = probed.nano_usd_per_hour if probed else None
    price = (
        "Its devices have no price, so that the cost is unknown."
        if rate is None
        else f"That is {amount(round(rate * (idle_s + seconds) / 3600))} of device time, at {amount(rate)} an hour."
    )
    return (
        f"Probe {model} at {url}",
        f"{len(steps)} steps, up to {format_duration(seconds)} after {idle_s:g} s without requests.",
        f"At most {total.requests} requests with {total.prompt_tokens:,} prompt tokens, and {total.generated_tokens:,} "
        "generated tokens.",
        price,
        "The server must have no other client meanwhile: the probe ends at another request.",
    )


def consent(yes: bool) -> None:
    """Ask before requests are sent. Raises BadInput where there is no terminal to ask at."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput("no terminal to ask at: pass --yes to send these requests")
    click.confirm("Send them?", abort=True, err=True)


def _store_points(
    where: StoreLocation,
    probed: Probed | None,
    unrecorded_reason: str | None,
    started_ts: int,
    url: str,
    result: Progressing,
    facts: dict[str, object],
) -> str | None:
    """Store the measured points; return the reason if they were not stored, else None."""
    from pertoken.advisor.probed import keep
    from pertoken.migrations import upgrade

    if probed is None or not result.points:
        return unrecorded_reason if result.points else "nothing was measured"
    try:
        upgrade(where, "advice")
        keep(where, probed.deployment_id, started_ts, int(time.time()), url, getpass.getuser(), result.points, facts)
    except StoreError as error:
        return str(error)
    return None


def _json_values(
    url: str,
    started_ts: int,
    probed: Probed | None,
    not_stored: str | None,
    points: Sequence[OperatingPoint],
    facts: dict[str, object],
) -> dict[str, object]:
    return {
        "endpoint": url,
        "started_ts": started_ts,
        "deployment_id": probed.deployment_id if probed else None,
        **facts,
        "stored": not_stored is None,
        "not_stored": not_stored,
        "points": [asdict(point) for point in points],
    }


def _result_lines(result: Progressing, not_stored: str | None) -> list[str]:
    lines = []
    for point in result.points:
        if point.ttft_s is not None:
            lines.append(f"prompt of {point.prompt_len:.0f} tokens alone: TTFT {1000 * point.ttft_s:.0f} ms")
        elif point.token_s is not None:
            lines.append(
                f"batch of {point.running:.0f} at {point.prompt_len:.0f} tokens: "
                f"{1000 * point.token_s:.1f} ms per token, "
                f"{point.running / point.token_s:.0f} tokens/s"
            )
    lines += [f"Note: {note}" for note in result.notes]
    if result.stopped:
        lines.append(f"Stopped early: {result.stopped}")
    lines.append(f"Not stored: {not_stored}" if not_stored else "Stored. The next advice is calibrated on it.")
    return lines
