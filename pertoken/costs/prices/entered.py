"""Amounts that people enter in another currency, kept as entered beside the dollars."""

import json
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal

from pertoken.units import NANO_USD


@dataclass(frozen=True, slots=True)
class Entered:
    """Amount in a currency with the rate that made dollars of it."""

    amount: Decimal
    currency: str
    """Code of three letters."""
    usd_per_unit: Decimal
    """Dollars of one unit of the currency."""
    rate_as_of: date
    rate_source: str

    @property
    def nano_usd(self) -> int:
        """The amount in dollars."""
        return int((self.amount * self.usd_per_unit * NANO_USD).to_integral_value())

    @property
    def text(self) -> str:
        """The amount as it was entered, with its rate."""
        rate = f"{self.usd_per_unit} USD, {self.rate_as_of}, {self.rate_source}"
        return f"{self.amount} {self.currency} (1 {self.currency} = {rate})"

    @property
    def stored(self) -> str:
        """Its fields as they are stored."""
        return json.dumps({name: str(value) for name, value in asdict(self).items()})


def entered_of(stored: str | None) -> Entered | None:
    """Return what was stored; None for an amount in dollars."""
    if stored is None:
        return None
    fields = json.loads(stored)
    return Entered(
        Decimal(fields["amount"]),
        fields["currency"],
        Decimal(fields["usd_per_unit"]),
        date.fromisoformat(fields["rate_as_of"]),
        fields["rate_source"],
    )
