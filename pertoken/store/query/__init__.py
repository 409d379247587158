"""Questions about telemetry, one statement each, and the one fast reader of their rows.

Front door: `read` (what there is and what happened), `sums` (sums over a window), `buckets` (rows of roll-ups as
integers), `segments` (which buckets make up a window), `device_shares` (which epoch had which device), `fast_rows` (how
statements run).
"""
