"""Clouds as detected on a host: their names in the firmware, and the pages of their metadata services."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache

from pertoken.catalog.offers import toml_table
from pertoken.units import NANO_USD


@dataclass(frozen=True, slots=True)
class MetadataPage:
    """A page of a metadata service, and the pattern of the value on it."""

    path: str
    pattern: str

    def part(self, text: str) -> str | None:
        """Return the value on a page; None if the page does not match."""
        match = re.fullmatch(self.pattern, text.strip())
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Cloud:
    """One row of `clouds.toml`, which explains each field."""

    name: str
    dmi: Mapping[str, str]
    base_url: str
    headers: Mapping[str, str]
    instance_type: MetadataPage
    region: MetadataPage
    purchase: MetadataPage
    words: Mapping[str, str]
    unreachable: str
    source: str
    as_of: date
    token_path: str | None = None
    token_request: Mapping[str, str] | None = None
    token_header: str | None = None


@cache
def clouds() -> tuple[Cloud, ...]:
    """Return all known clouds."""
    pages = ("instance_type", "region", "purchase")
    rows = toml_table("clouds.toml")["cloud"]
    return tuple(Cloud(**row | {name: MetadataPage(**row[name]) for name in pages}) for row in rows)


def cloud_of(dmi: Mapping[str, str | None]) -> Cloud | None:
    """Return the cloud with these firmware values; None for any other host."""
    return next((cloud for cloud in clouds() if all(dmi.get(key) == text for key, text in cloud.dmi.items())), None)


_YEAR_S = 365 * 86_400


@dataclass(frozen=True, slots=True)
class CloudCommands:
    """One row of `cloud_commands.toml`, which explains each field."""

    name: str
    release: str
    release_fill_in: str
    availability: str
    order: str
    spot: str
    order_fill_in: str
    source: str
    as_of: date
    release_find: str = ""
    commit: tuple[str, ...] = ()
    commit_fill_in: str = ""

    def released(self, host: str, region: str) -> tuple[str, ...]:
        """Return the commands that release an instance, with a comment on the placeholders to fill in.

        Where its id must be looked up, the first command puts it into the shell variable INSTANCE.
        """
        release = _filled(self.release, host=host, region=region)
        if not self.release_find:
            return (f"{release}  # {self.release_fill_in}",)
        find = _filled(self.release_find, host=host, region=region)
        return f"INSTANCE=$({find})", f'{release} "$INSTANCE"  # {self.release_fill_in}'

    def offered(self, instance_type: str, region: str) -> str:
        """Return the command that lists where an instance type is offered."""
        return _filled(self.availability, instance_type=instance_type, region=region)

    def ordered(self, instance_type: str, region: str, *, spot: bool, count: int = 1) -> str:
        """Return the command that starts instances, with a comment on the placeholders to fill in."""
        line = f"{self.order} {self.spot}" if spot else self.order
        times = f"; run it {count} times" if count > 1 and "{count}" not in self.order else ""
        filled = _filled(line, instance_type=instance_type, region=region, count=str(count))
        return f"{filled}  # {self.order_fill_in}{times}"

    def committed(self, instance_type: str, region: str, *, years: int, usd_per_hour: float) -> tuple[str, ...]:
        """Return the commands that commit to instances at `usd_per_hour` for all of them; empty if there is none."""
        if not self.commit:
            return ()
        lines = [
            _filled(
                line,
                region=region,
                family=instance_type.partition(".")[0],
                seconds=str(years * _YEAR_S),
                months=str(12 * years),
                usd_per_hour=f"{usd_per_hour:.2f}",
            )
            for line in self.commit
        ]
        return (*lines[:-1], f"{lines[-1]}  # {self.commit_fill_in}")


def _filled(template: str, **values: str) -> str:
    """Fill in each word of a command separately, so that a name cannot become several words."""
    return shlex.join(word.format(**values) for word in shlex.split(template))


@cache
def cloud_commands() -> Mapping[str, CloudCommands]:
    """Return all clouds with commands, by their name in a placement."""
    return {row["name"]: CloudCommands(**row) for row in toml_table("cloud_commands.toml")["cloud"]}


INTERNET, REGION = "internet", "region"
"""Destinations of a rate: another provider or a client, and another region of the same provider."""


@dataclass(frozen=True, slots=True)
class TransferRate:
    """List price of data that leaves a provider."""

    usd_per_gb: float
    max_usd_per_gb: float
    """Of its dearest published pair of places."""
    confidence: str
    """As of a list price: `high`, `medium` or `low`."""
    source: str
    as_of: date

    @property
    def nano_usd_per_byte(self) -> tuple[float, float]:
        """The usual and the largest rate."""
        return self.usd_per_gb * NANO_USD / 1e9, self.max_usd_per_gb * NANO_USD / 1e9


@dataclass(frozen=True, slots=True)
class MinimumTerm:
    """Shortest time that a provider bills an instance for."""

    seconds: int
    source: str
    as_of: date


def transfer_rate(provider: str | None, to: str) -> TransferRate | None:
    """Return the rate of data that leaves a provider, `to` `INTERNET` or `REGION`; None if it is not known."""
    for row in toml_table("transfer.toml")["rate"]:
        if (row["provider"], row["to"]) == (provider, to):
            return TransferRate(**{name: value for name, value in row.items() if name not in ("provider", "to")})
    return None


def minimum_term(provider: str | None) -> MinimumTerm | None:
    """Return the shortest billed time of instances of a provider; None if it is not known."""
    rows = (row for row in toml_table("transfer.toml")["term"] if row["provider"] == provider)
    return next((MinimumTerm(row["seconds"], row["source"], row["as_of"]) for row in rows), None)


def bytes_per_token() -> tuple[float, float]:
    """Return the bytes of a token as text, and as an event of a streamed answer."""
    values = toml_table("transfer.toml")["bytes_per_token"]
    return float(values["text"]), float(values["streamed"])


def hours_both_run() -> tuple[float, float, float]:
    """Return the fewest, likely and most hours in which the old and the new instances of a move both run."""
    fewest, likely, most = toml_table("transfer.toml")["both_run"]["hours"]
    return float(fewest), float(likely), float(most)
