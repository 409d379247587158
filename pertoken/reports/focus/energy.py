"""Measured energy of epochs by day."""

from collections.abc import Mapping

from pertoken.reports.period import DAY, Period
from pertoken.store.connect.open import Store
from pertoken.window.energy import EpochEnergy
from pertoken.window.reading import Window

DailyEnergy = Mapping[tuple[int, int], EpochEnergy]
"""(first instant of the day in the period, epoch) -> energy of its devices."""


def energy_by_day(store: Store, period: Period) -> DailyEnergy:
    """Read the energy of each day of a period. Raises StoreError."""
    daily: dict[tuple[int, int], EpochEnergy] = {}
    with store.read() as connection:
        for day in period.days():
            start, end = max(day, period.start), min(day + DAY, period.end)
            dated = period.dated or end < period.end
            for epoch_id, energy in Window(connection, start, end, dated=dated).energy().items():
                daily[start, epoch_id] = energy
    return daily
