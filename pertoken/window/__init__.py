"""One reading of a time window: from the rows of the telemetry to figures. Nothing here has a price.

Front door:

- `window.reading`: `Window`, everything recorded of a stretch of time, read in one transaction.
- `window.inventory`: `Inventory`, what there was: hosts, devices, deployments with their epochs and ranks.
- `window.totals`: `Totals` and `Recent`, sums over the window; `window.recent`: `Recent`, how it is now.
- `window.measured`: `Measured`, the buckets of a window, as columns.
- `window.evidence`: `EvidenceReader`, what rules read of deployments, devices and hosts.
- `window.demand`: what clients asked of a service.
- `window.engine_counts`, `window.histograms`, `window.figures`, `window.observed`: figures from sums.
"""
