"""Simulator of a demo: engines with true efficiencies, arrivals of requests, and devices.

It shares only the catalog and the forecast's term formulas with the advisor: no rule, price estimate, calibration or
interval is imported, so that comparing advice with it is not circular.

- `physics`: the true speed of an engine, drawn from the uncertainty of the fitted table.
- `arrivals`: requests and their lengths over time, shaped by two production traces.
- `course`: operation of an engine under arrivals: tokens, busy time, latencies.
- `devices`: power and activity of its devices meanwhile.
"""
