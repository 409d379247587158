"""Savings of going from one fleet state to another, and the check of latency objectives.

Front door:

- `savings.estimate`: `estimate(before, after, context)` and its `Estimate`.
- `savings.context`: `Context`, what pricing needs beside two fleets.
- `savings.load`: `MeasuredLoad`, the load of a deployment or service, which may be measured ahead.
- `savings.slo`: the latency lines an estimate carries.
- `savings.sensitivity`: `sensitivity`, which assumption moves an estimate most; `traffic`, evidence at another load.
- `savings.sizing`: the objectives of a service, and how many replicas hold them.
- `savings.size`: sizing before deployment; see its docstring.
"""
