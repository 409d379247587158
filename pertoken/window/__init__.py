"""One reading of a time window: from the rows of the telemetry to figures. Nothing here has a price.

Front door:

- `window.reading`: `Window`, everything recorded of an interval, read in one transaction.
- `window.inventory`: `Inventory` of hosts, devices, and deployments with their epochs and ranks; `follows`, whether
  the tokens of a rank are counted by its head rank.
- `window.totals`: `Totals`, sums over the window; `Recent`, the present state.
- `window.energy`: `EpochEnergy`, energy of the devices that an epoch held.
- `window.columns`: `Columns`, the form in which a window returns its buckets.
- `window.like_for_like`: `compare`, costs per token of two sets of hours at like load.
- `window.epochs`: `hours_in_turn`, hours of epochs that ran one after another.
- `window.course`: `Course`, the series of a host or deployment by slice, with its changes.
- `window.figures`: figures from sums, shares of time that was observed, and progress of long readings.
- `window.timeline`: `Timeline`, the time range that a database covers, with its events.

`Window` returns evidence, demand and buckets too; their construction is internal. `window.series` computes each
series of `metrics.SERIES` from rows by bucket: evidence, demand and courses ask it.
"""
