"""The world of a demo: engines with true efficiencies of their own, arrivals, and what a change would truly save.

It shares the catalog and the forecast's term formulas with the advisor, and nothing else: no rule, price estimate,
calibration or interval is imported here, so that advice that finds what was planted is no circle.

- `physics`: the true speed of an engine, drawn from the uncertainty of the fitted table.
- `arrivals`: requests and their lengths over time, shaped by two production traces.
- `course`: what an engine serves under arrivals.
- `devices`: what its devices draw and do meanwhile.
"""
