"""Figures for other readers than the screens: reports, FOCUS rows, gates, alerts, exporters, MCP server.

Front door:

- `reports.figures`: `Period`, and `read_figures`, all figures of a report.
- `reports.html` and `reports.markdown`: a self-contained HTML page; Markdown and CSV of the same figures.
- `reports.focus`: FOCUS 1.4 rows.
- `reports.gates` and `reports.alerts`: figures compared with limits, once and every minute.
- `reports.exporters`, `reports.mcp_server` and `reports.team`: figures for metrics, models and a browser.
"""
