"""Telemetry that a Prometheus server recorded already, read into a database as if an agent had been there.

Front door: `run.import_prometheus`. Series are read over `query_range` (`prometheus`) and grouped by engine and device
(`series`). They are replayed minute by minute through the same rows as the readings of a host (`run`).
"""
