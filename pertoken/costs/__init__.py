"""Allocation of every device-hour to its payer: the bill of a window, its report, and the present fleet.

Front door:

- `costs.prices`: `stored` (the prices of a database), `book`, `offers`.
- `costs.report`: `fleet_report` and its `lines`.
- `costs.hours`: `hourly`, dollars by model and hour.
- `costs.bill`: `bill`, a window with its prices, which all dollars are read from; `costs.lines`: its lines.
- `costs.ledger`: the identity of the bill; `costs.repricing`: effect of a change of prices.
- `costs.fleet`: the present as a `state.Fleet`.
"""
