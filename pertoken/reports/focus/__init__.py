"""FOCUS 1.4 rows: each device-day split by allocation (data-generator-calculated split cost allocation).

https://focus.finops.org/focus-specification/

Front door: `rows` (`focus_rows`), `columns` (`COLUMNS`) and `energy` (`energy_by_day`).
"""
