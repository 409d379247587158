"""The terminal screens: they read telemetry and show advice, and never write telemetry.

Front door:

- `tui.app`: the terminal program.
- `tui.source`, `tui.store_source`: the protocol that screens read from, and its implementation over a database.
- `tui.text.summary`: the same facts as plain text, without a terminal.
- `tui.keys`: the table of keys, for the documentation.
"""
