"""Telemetry that a Prometheus server recorded already, read into a database as if an agent had been there.

`run.import_prometheus` is the front door. Series are read over `query_range` (`api`), grouped by what they are of
(`series`), and replayed minute by minute through the same rows as the readings of a host (`replay`).
"""
