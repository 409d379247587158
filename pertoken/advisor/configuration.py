"""Configuration that advice belongs to: one database holds the advice of one settings file.

An advice run with other settings would replace the advice that people read. A run stores nothing unless the database
names its configuration. An edit of the same file is no other configuration.
"""

import hashlib
import os
from dataclasses import dataclass

from sqlalchemy import Connection

from pertoken.advisor.rules.discovery import disabled
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.settings.values import APP
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_advice
from pertoken.store.repository import AdviceRepository, add_configuration, last_configuration

KEYS = (
    *("services", "hosts", "commitments", "rules"),
    *("advisor_since", "advisor_rules", "advisor_allow", "advisor_deny", "advisor_forbid"),
    "advisor_quality_gate",
    *("market_provider", "market_region", "market_allowed_regions", "market_token_apis"),
    *("slo_ttft_ms", "slo_tpot_ms", "slo_ttft_p50_ms", "slo_tpot_p50_ms"),
    *("energy_usd_per_kwh", "energy_pue"),
)
"""Attributes of `Settings` that change advice."""
ADOPT = "--adopt-config"
NO_FILE = "no settings file"
_WITH = " with "
"""Separates the file from the environment variables."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings of an advice run."""

    source: str
    """Path of the settings file, and the environment variables that change advice."""
    digest: str
    """Digest of the settings that change advice, wherever they were set."""


def configuration_of(settings: Settings) -> Configuration:
    """Return the configuration of a run with these settings. Raises BadInput if its list of rules cannot be read."""
    prefix = f"{APP}_".upper()
    places = {settings.set_by.get(key, "") for key in KEYS}
    variables = sorted(variable for variable in places if variable.startswith(prefix))
    # Not the target of a link: that of a mounted ConfigMap changes with each edit.
    file = NO_FILE if settings.source is None else os.path.abspath(settings.source)  # noqa: PTH100
    values = [(key, getattr(settings, key)) for key in KEYS]
    digest = hashlib.sha256(repr((values, sorted(disabled(settings.folder)))).encode()).hexdigest()
    return Configuration(_WITH.join((file, ", ".join(variables)) if variables else (file,)), digest)


def stored_configuration(location: StoreLocation) -> Configuration | None:
    """Return the configuration that a database names; None before its first advice run. Raises StoreError."""
    advice = open_advice(location)
    if advice is None:
        return None
    with advice.connect() as connection:
        return _last(connection)


def difference(stored: Configuration | None, used: Configuration) -> str | None:
    """Return a sentence on how stored advice differs from the settings in use; None if it does not."""
    if stored is None or stored.digest == used.digest:
        return None
    if stored.source == used.source:
        return f"settings that change advice are not those of the last advice run ({used.source})"
    return f"stored advice belongs to {stored.source}, and other settings are in use: {used.source}"


def check(location: StoreLocation, used: Configuration) -> None:
    """Raise BadInput if a run would replace the advice of another configuration."""
    _refuse_other(location, stored_configuration(location), used)


def claim(target: AdviceRepository, used: Configuration, now_ts: int, who: str, *, adopt: bool = False) -> str | None:
    """Make the advice of a database belong to a configuration; return a line to report, None if nothing changed.

    Raises BadInput if it belongs to another one, unless `adopt`.
    """
    with target.writing() as connection:
        stored = _last(connection)
        if not adopt:
            _refuse_other(target.location, stored, used)
        changed = difference(stored, used)
        if stored is None or changed is not None:
            add_configuration(connection, source=used.source, digest=used.digest, set_ts=now_ts, set_by=who)
    if changed is None or stored is None or stored.source == used.source:
        return changed
    return f"advice of {target.location} belongs to {used.source} from now on, before to {stored.source}"


def _refuse_other(location: StoreLocation, stored: Configuration | None, used: Configuration) -> None:
    if stored is None or stored.source == used.source or stored.digest == used.digest:
        return
    file, _, variables = stored.source.partition(_WITH)
    same = "without a settings file" if file == NO_FILE else f"with --config {file}"
    same += f" and the same {variables}" if variables else ""
    raise BadInput(
        f"{location}: its advice belongs to another configuration: {stored.source}; this run uses {used.source}. "
        f"Nothing was stored. Run it {same}, or give the advice to this configuration: `pertoken advise {ADOPT}`; "
        "`--at -1m` prints advice of these settings and stores none"
    )


def _last(connection: Connection) -> Configuration | None:
    rows = last_configuration(connection)
    return Configuration(rows[0].source, rows[0].digest) if rows else None
