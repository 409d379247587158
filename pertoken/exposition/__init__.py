"""A Prometheus metrics page, and the HTTP server of it and of the team's pages.

It needs no client library: the values come from the store, and the format takes forty lines.

Front door: `page` (`Family`, `text_of`), `http_server` (`PageServer`), `server` (`MetricsServer`)
and `otlp` (`Pusher`).
"""
