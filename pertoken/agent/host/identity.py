"""Identity and purchase of this machine, by its firmware and by the metadata service of a cloud that this names."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape import RequestLimits, ScrapeError, fetch
from pertoken.agent.workers import Backoff, Clock
from pertoken.catalog.clouds import Cloud, MetadataPage, cloud_of

_LIMITS = RequestLimits(timeout_s=1.0, page_bytes=10_000)
"""A metadata service is a hop away."""
_DMI = ("sys_vendor", "product_name", "chassis_asset_tag")
_OFF = "agent.cloud_metadata"


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Identity of a host from its firmware and its cloud; None is unknown."""

    dmi_vendor: str | None = None
    dmi_product: str | None = None
    cloud: str | None = None
    instance_type: str | None = None
    region: str | None = None
    purchase: str | None = None
    """`on_demand` or `spot`."""


class LastingIdentity:
    """This host's identity, asked for until it is known, then never again.

    `ask` is whether the cloud may be asked at all. `root` is the folder that /sys is read under.
    """

    def __init__(
        self,
        ask: bool,
        root: Path = Path("/"),
        clock: Clock = time.monotonic,
        instance: Callable[[Cloud], HostIdentity] | None = None,
    ) -> None:
        dmi = read_dmi(root)
        self._cloud = cloud_of(dmi)
        self._ask = ask
        self._instance = instance or read_instance
        self._backoff = Backoff(clock)
        self.unavailable: tuple[Unavailable, ...] = ()
        self.known = HostIdentity(
            dmi_vendor=dmi["sys_vendor"],
            dmi_product=dmi["product_name"],
            cloud=self._cloud.name if self._cloud else None,
        )

    def look(self) -> HostIdentity:
        """Return the known identity; `unavailable` lists the rest. Takes up to two seconds until all is known."""
        cloud = self._cloud
        if cloud is None or self.known.instance_type:
            return self.known
        if not self._ask:
            reason = f"this host is of {cloud.name}; its metadata service was not asked, since {_OFF} is off"
            self.unavailable = (Unavailable("cloud", "missing", reason, f"{_OFF} = true, or set a price"),)
        elif self._backoff.due:
            try:
                instance = self._instance(cloud)
            except ScrapeError as error:
                self._backoff.failed()
                reason = f"the metadata service of {cloud.name} did not report the instance type ({error.message})"
                self.unavailable = (Unavailable("cloud", "failing", reason, f"{cloud.unreachable}; or set a price"),)
            else:
                self.known = replace(instance, dmi_vendor=self.known.dmi_vendor, dmi_product=self.known.dmi_product)
                self.unavailable = ()
        return self.known


def read_dmi(root: Path = Path("/")) -> Mapping[str, str | None]:
    """Return the machine's identity from its firmware. Source: /sys/class/dmi/id of the kernel's dmi-id driver."""
    values: dict[str, str | None] = dict.fromkeys(_DMI)
    for name in values:
        with suppress(OSError):
            values[name] = (root / "sys/class/dmi/id" / name).read_text(errors="replace").strip() or None
    return values


def read_instance(cloud: Cloud, base_url: str | None = None, limits: RequestLimits = _LIMITS) -> HostIdentity:
    """Return this instance as a cloud's metadata service reports it; region and purchase are None if it does not.

    Raises ScrapeError if the instance type cannot be had.
    """
    base = base_url or cloud.base_url
    headers = dict(cloud.headers)
    if cloud.token_path and cloud.token_header:
        token = fetch("PUT", base + cloud.token_path, limits, cloud.token_request or {}).body
        headers[cloud.token_header] = token.decode("ascii", "replace").strip()

    def ask(name: str) -> str | None:
        page: MetadataPage = getattr(cloud, name)
        return page.part(fetch("GET", base + page.path, limits, headers).body.decode("utf-8", "replace"))

    instance_type = ask("instance_type")
    if instance_type is None:
        raise ScrapeError("malformed", "its answer is not an instance type")
    region = word = None
    with suppress(ScrapeError):
        region = ask("region")
    with suppress(ScrapeError):
        word = ask("purchase")
    purchase = None if word is None else cloud.words.get(word)
    return HostIdentity(cloud=cloud.name, instance_type=instance_type, region=region, purchase=purchase)
