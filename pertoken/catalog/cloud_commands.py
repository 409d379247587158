"""Commands of clouds that start, release and commit to instances, as data with their source."""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

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
    as_of: str
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
    text = files("pertoken.catalog").joinpath("cloud_commands.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["cloud"]
    return {row["name"]: CloudCommands(**row | {"commit": tuple(row.get("commit", ()))}) for row in rows}
