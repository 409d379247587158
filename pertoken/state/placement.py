"""Place of a deployment, and the way its devices are paid for."""

from dataclasses import dataclass, replace
from typing import Any

from pertoken.state.errors import InvalidEdit
from pertoken.state.knobs import is_name

PURCHASES = ("on_demand", "spot", "reserved", "owned", "per_token")
"""Ways a device-hour is paid for; `per_token` is a serverless API, which has no devices."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Provider, region, instance and purchase of devices. None is unknown, or not asked for in a proposal."""

    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    accelerator: str | None = None
    """Catalog name."""
    devices_per_instance: int | None = None
    purchase: str | None = None
    """One of `PURCHASES`."""
    offer: str | None = None
    """Identifier of a listed offer, where a rule means one in particular."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            if name == "devices_per_instance":
                if type(value) is not int or value < 1:
                    raise InvalidEdit(f"devices_per_instance={value!r} is not possible: use a whole number above 0")
            elif not is_name(value):
                raise InvalidEdit(f"{name}={value!r} of a placement is not a name")
        if self.purchase is not None and self.purchase not in PURCHASES:
            raise InvalidEdit(f"purchase={self.purchase!r} is not possible: use one of {', '.join(PURCHASES)}")

    def over(self, present: "Placement") -> "Placement":
        """Return this placement completed by the present one.

        A proposal names what changes: the provider, region and purchase it leaves out stay. The instance (type, size,
        offer) stays only while accelerator and provider do.
        """
        kept = {name: getattr(self, name) or getattr(present, name) for name in ("provider", "region", "purchase")}
        if self.purchase == "per_token":  # an API has no devices, and its regions are its own
            return replace(self, accelerator=None, instance_type=None, devices_per_instance=None)
        accelerator = self.accelerator or present.accelerator
        same = (accelerator, kept["provider"]) == (present.accelerator, present.provider)
        instance: dict[str, Any] = {
            name: getattr(self, name) or (getattr(present, name) if same else None)
            for name in ("instance_type", "devices_per_instance")
        }
        # An offer is of one purchase and region: it is never carried over.
        return Placement(**kept, accelerator=accelerator, **instance, offer=self.offer)


@dataclass(frozen=True, slots=True)
class Commitment:
    """Instances paid for until a date, used or not; it belongs to the fleet, not to a deployment."""

    provider: str
    region: str | None
    instance_type: str
    count: int
    nano_usd_per_instance_hour: int
    end_ts: int | None = None
    """Epoch seconds, UTC; None of one that is proposed, whose term starts when it is bought."""
    years: int | None = None
    """Term of one that is proposed."""

    def __post_init__(self) -> None:
        if (self.end_ts is None) == (self.years is None):
            raise InvalidEdit("a commitment has either an end or a term in years")
        if self.years is not None and (type(self.years) is not int or self.years < 1):
            raise InvalidEdit(f"years={self.years!r} of a commitment is not possible: use a whole number above 0")
        if type(self.count) is not int or self.count < 1:
            raise InvalidEdit(f"count={self.count!r} of a commitment is not possible: use a whole number above 0")
        if type(self.nano_usd_per_instance_hour) is not int or self.nano_usd_per_instance_hour < 0:
            raise InvalidEdit("the price of a commitment is a whole number of nano-dollars, 0 or more")

    def runs_after(self, ts: int) -> bool:
        """Return whether it is paid for after an instant; one that is only proposed is."""
        return self.end_ts is None or self.end_ts > ts
