"""The serving model: what throughput, latency and concurrency a deployment would have under a load.

Front door:

- `forecast.serving`: `forecast` and `compare`, throughput and what a change does to it.
- `forecast.latency`, `forecast.latency`: latency under arrivals, and how many replicas hold objectives.
- `forecast.power`, `savings.changes.kept_replicas`: watts of a device, and of a deployment's devices under a load.
- `forecast.served`: `Load`, `resolve` and `Abstained`, a deployment as the model takes it or why it cannot.
- `savings.size`: whether weights fit in device memory, and the KV cache they leave.
- `forecast.tiers`: what a forecast rests on, with the error measured for it.
- `forecast.formats`: what is assumed where nobody could see it.
- `forecast.host`: `calibrate_all`, several deployments calibrated side by side, each on its own operating points.

Terms, efficiencies, calibration and the steady state are computed inside; the benchmarks that fit them read them too.
"""
