"""The serving model: throughput, latency and concurrency of a deployment under a load.

Front door:

- `forecast.serving`: `forecast` and `compare`, throughput and its change.
- `forecast.latency`: latency under arrivals, and how many replicas hold objectives.
- `forecast.power`: watts of a device under work, under a power cap, and at a locked clock.
- `forecast.served`: `Load`, `resolve` and `Abstained`, a deployment as the model takes it or why it cannot.
- `forecast.capacity`: whether a deployment starts on its devices, and the sequences that its KV cache holds.
- `forecast.tiers`: bases of forecasts, each with its measured error.
- `forecast.formats`: formats, and assumptions for unseen values.
- `forecast.host`: `calibrate_all`, several deployments calibrated side by side, each on its own operating points.

Terms, efficiencies, calibration and the steady state are computed inside; the benchmarks that fit them read them too.
"""
