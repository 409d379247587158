"""The serving model: what throughput, latency and concurrency a deployment would have under a load."""
