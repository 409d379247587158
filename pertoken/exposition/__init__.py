"""A Prometheus metrics page and the small server that shows it, for the agent and the advisor.

No client library: the agent counts in its store already, and a page is written from values in forty lines.

Front door: `page` (`Family`, `text_of`), `server` (`MetricsServer`) and `otlp` (`Pusher`).
"""
