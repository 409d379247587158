"""Pages of inference servers: fetched over HTTP within a time and a size, and parsed.

Front door: `http` (one request), `page` (the Prometheus text format).
"""
