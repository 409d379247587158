"""Questions about telemetry, one statement each, and the one fast reader of their rows.

Front door: `read` (hosts, devices, epochs and events), `rollups` (rows of roll-ups), `sums` (sums over a window),
`buckets` (rows of roll-ups as integers), `segments` (the buckets that make up a window), `device_shares` (devices by
epoch), `fast_rows` (execution of statements).
"""
