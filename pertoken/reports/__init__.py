"""Figures for other readers than the screens: reports, FOCUS rows, gates, alerts, exporters, MCP server.

Front door:

- `reports.figures`: `Period`, the stretch of time that a report covers.
- `reports.figures`: `read_figures`, everything a report shows of a period.
- `reports.html`: `html.page`, a self-contained HTML page.
- `reports.markdown`: Markdown and CSV of the same figures.
- `reports.focus`: FOCUS 1.3 rows.
"""
