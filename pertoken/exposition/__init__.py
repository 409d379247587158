"""A Prometheus metrics page and a small HTTP server for it, used by agent and advisor.

It needs no client library: the values come from the store, and the format takes forty lines.

Front door: `page` (`Family`, `text_of`), `server` (`MetricsServer`) and `otlp` (`Pusher`).
"""
