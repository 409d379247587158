"""The terminal screens. They read telemetry and show advice; they never write telemetry.

Front door:

- `tui.app`: the terminal program.
- `tui.source`, `tui.store_source`: where screens get what they show.
- `tui.text.summary`: the same facts as plain text, without a terminal.
- `tui.keys`: the table of keys, for the documentation.
"""
