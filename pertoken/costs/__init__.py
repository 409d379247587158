"""Allocation of every device-hour to its payer: the bill of a window, its report, and the present fleet.

Front door:

- `costs.prices`: `stored` (the prices of a database), `book`, `selectors`, `repricing`.
- `costs.report`: `fleet_report` and its `lines`.
- `costs.hours`: `hourly` and `hour`, dollars by model and hour.
- `costs.ledger`: the identity of the bill, and `Bill`.
- `costs.fleet`: the present as a `state.Fleet`.
"""
