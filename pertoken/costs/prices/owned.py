"""Cost of a device-hour to its owner: capital, maintenance and colocation of its server, and measured energy."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from pertoken.catalog.instances import node_power, terms
from pertoken.costs.prices.book import Price
from pertoken.units import NANO_USD, format_usd

HOURS_PER_YEAR = 8760
MONTHS = 12


@dataclass(frozen=True, slots=True)
class Ownership:
    """Price and running cost of a server as its owner states them; None stands for the default of `terms()`."""

    capex_usd: float
    """Of the whole server with its share of the network."""
    nameplate_kw: float | None = None
    """Power that is reserved for the server; None: colocation is not counted."""
    years: float | None = None
    cost_of_capital: float | None = None
    residual: float | None = None
    maintenance: float | None = None
    usd_per_kwh: float | None = None
    pue: float | None = None
    colo_usd_per_kw_month: float | None = None
    operations_hours: float | None = None
    usd_per_operations_hour: float | None = None
    at_plug: bool = False
    """Whether its energy is that of the server at the plug; else of its devices alone, as in older terms."""
    node_w: float | None = None
    """Mean power of the server as measured at its plug; None: by the model of `catalog.owned`."""

    def __post_init__(self) -> None:
        """Raises ValueError naming what is out of range."""
        if not 0 < self.capex_usd <= 1e8:
            raise ValueError("capex is the price of the server in dollars, above 0")
        if self.nameplate_kw is not None and not 0 < self.nameplate_kw <= 1000:
            raise ValueError("nameplate_kw is the power of the server in kilowatts, above 0 and at most 1000")
        if self.node_w is not None and not 0 < self.node_w <= 1e6:
            raise ValueError("node_w is the mean power of the server at its plug in watts, above 0")
        for name, term in terms().items():
            value = getattr(self, name)
            if value is not None and not term.low <= value <= term.high:
                raise ValueError(f"{name} ({term.meaning}) is from {term.low:g} to {term.high:g}, usually {term.usual}")

    def stated(self, name: str) -> float:
        """Return a term as it is stated, else its default."""
        value = getattr(self, name)
        return terms()[name].value if value is None else float(value)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Terms that nobody stated."""
        unused = {"colo_usd_per_kw_month"} if self.nameplate_kw is None else set()
        unused |= set() if self.operations_hours else {"operations_hours", "usd_per_operations_hour"}
        return tuple(name for name in terms() if getattr(self, name) is None and name not in unused)

    @property
    def text(self) -> str:
        """Its fields as they are stored."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


def ownership_of(text: str) -> Ownership:
    """Return what was stored; fields of a newer pertoken are left out."""
    known = {field.name for field in fields(Ownership)}
    stored: dict[str, Any] = json.loads(text)
    return Ownership(**{name: value for name, value in stored.items() if name in known})


@dataclass(frozen=True, slots=True)
class DeviceHour:
    """The cost of an hour of one of a server's devices, dollars by part."""

    capital: float
    maintenance: float
    colocation: float
    energy: float
    operations: float = 0.0

    @property
    def nano_usd(self) -> int:
        """All parts together."""
        return round((self.capital + self.maintenance + self.colocation + self.energy + self.operations) * NANO_USD)


def paid_power_w(
    owned: Ownership, devices: int, power_w: float | None, limit_w: float | None, plug_w: float | None = None
) -> float | None:
    """Return the watts that one of a server's devices pays for: its part of the server's at the plug.

    `power_w`: its own mean power; `limit_w`: its power limit, without which the rest of the server is not known;
    `plug_w`: the server's mean power as the agent recorded it.
    """
    if not owned.at_plug:
        return power_w
    server_w = plug_w if owned.node_w is None else owned.node_w
    if server_w is not None:
        return server_w / devices
    return power_w if power_w is None or limit_w is None else node_power().watts(power_w, limit_w)


def device_hour(owned: Ownership, devices: int, power_w: float | None) -> DeviceHour:
    """Return what an hour of one of `devices` costs at the power it pays for; without one its energy is left out.

    [C (1 - rv) CRF(r, n) + C rv r] / 8760 for capital, with CRF = r / (1 - (1 + r)^-n), C m / 8760 for maintenance,
    kW colo 12 / 8760 for the room, kW PUE $/kWh for energy, hours a year x $ / 8760 for the people.
    """
    usd_per_device = owned.capex_usd / devices
    rate, years, residual = (owned.stated(name) for name in ("cost_of_capital", "years", "residual"))
    recovery = 1 / years if rate == 0 else rate / (1 - (1 + rate) ** -years)
    kw = (owned.nameplate_kw or 0.0) / devices
    return DeviceHour(
        capital=usd_per_device * ((1 - residual) * recovery + residual * rate) / HOURS_PER_YEAR,
        maintenance=usd_per_device * owned.stated("maintenance") / HOURS_PER_YEAR,
        colocation=kw * owned.stated("colo_usd_per_kw_month") * MONTHS / HOURS_PER_YEAR,
        operations=owned.stated("operations_hours")
        * owned.stated("usd_per_operations_hour")
        / devices
        / HOURS_PER_YEAR,
        energy=(power_w or 0.0) / 1000 * owned.stated("pue") * owned.stated("usd_per_kwh"),
    )


def owned_prices(
    uuid: str,
    host: str,
    devices: int,
    owned: Sequence[tuple[int, Ownership]],
    power: Sequence[tuple[int, float]],
    limit_w: float | None = None,
    plug: Sequence[tuple[int, float]] = (),
) -> tuple[Price, ...]:
    """Return the prices of one device of an owned server, in force from each change of its terms and each week.

    `owned` are terms by the instant they are in force from, `power` its mean watts by the start of each week. The power
    of a week that is over never changes, and so do its costs not. `limit_w` is its power limit; None for a CPU. `plug`
    is the server's mean watts at its plug by week.
    """
    if not owned:
        return ()
    starts = sorted({start for start, _ in (*power, *plug)})
    first = owned[0][0]
    prices: list[Price] = []
    for ts in sorted({start for start, _ in owned} | {start for start in starts if start > first}):
        stated = owned[bisect_right([start for start, _ in owned], ts) - 1][1]
        power_w, plug_w = _in_week(power, ts), _in_week(plug, ts)
        paid_w = paid_power_w(stated, devices, power_w, limit_w, plug_w)
        price = device_hour(stated, devices, paid_w).nano_usd
        if not prices or prices[-1].nano_usd_per_device_hour != price:
            note = _note(host, stated, devices, power_w, paid_w, measured=plug_w is not None)
            prices.append(Price(uuid, price, from_ts=ts, set_by="ownership", note=note, listed=True))
    return tuple(prices)


def _in_week(weekly: Sequence[tuple[int, float]], ts: int) -> float | None:
    """Return the value of the week of an instant, else of the one before; of the first week before that."""
    return weekly[max(0, bisect_right([start for start, _ in weekly], ts) - 1)][1] if weekly else None


def _note(
    host: str, owned: Ownership, devices: int, power_w: float | None, paid_w: float | None, *, measured: bool
) -> str:
    energy = "without its energy, which was not measured" if power_w is None else f"at {power_w:.0f} W measured"
    if paid_w is not None and paid_w != power_w:
        source = "measured" if measured or owned.node_w is not None else "modelled"
        energy = f"at {paid_w:.0f} W of the server's power at the plug, {source}"
    elif owned.at_plug and power_w is not None:
        energy += " without the rest of the server, as its power limit is not known"
    assumed = f"; assumed: {', '.join(owned.assumed)}" if owned.assumed else ""
    return f"cost of owning {host} ({format_usd(owned.capex_usd * NANO_USD)} for {devices} devices, {energy}{assumed})"
