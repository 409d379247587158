"""Sizing before deployment: which accelerators, layouts and formats serve a workload within its SLO, and at what cost.

No host, database or measurement is needed: the serving model is used as it is without calibration, with list prices.

Front door:

- `savings.size.workload`: `Workload`, what the service will be asked for.
- `savings.size.ranking`: `size`, and the `Sizing` it returns.
"""
