"""What going from one fleet state to another saves, and whether it keeps the latency objectives.

Front door:

- `savings.estimate`: `estimate(before, after, context)` and its `Estimate`.
- `savings.context`: `Context`, what pricing needs beside two fleets.
- `savings.slo`: the latency lines an estimate carries.
- `savings.sizing`: the objectives of a service, and how many replicas hold them.
"""
