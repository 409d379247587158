"""The terminal screens: they read telemetry and show advice, and never write telemetry.

Front door:

- `tui.app`: the terminal program.
- `tui.source`, `tui.store_source`: the protocol that screens read from, and its implementation over a database.

Sentences and tables of the screens are in `text`, which needs no terminal.
"""
