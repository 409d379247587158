"""One reading of a time window: from the rows of the telemetry to figures. Nothing here has a price.

Front door:

- `window.reading`: `Window`, everything recorded of a stretch of time, read in one transaction.
- `window.inventory`: `Inventory`, what there was: hosts, devices, deployments with their epochs and ranks.
- `window.totals`: `Totals`, sums over the window; `window.recent`: `Recent`, how it is now.
- `window.epochs.energy`: `EpochEnergy`, energy of the devices that an epoch held.
- `window.columns`: `Columns`, in which a window hands out its buckets.
- `window.parts`: `Parts`, what of a window was read, and reads the rest when it is looked at.
- `window.ranks`: `follows`, whether the tokens of a rank are counted by its head rank.
- `window.epochs.like_for_like`: `compare`, costs per token of two sets of hours at like load.
- `window.epochs.history`: `in_turn`, hours of epochs that ran one after another.
- `window.engine_counts`, `window.figures`, `window.observed`: figures from sums.

`Window` hands out evidence, demand and buckets too; how these are made is its own business.
"""
