"""What screens show as plain values: columns of tables, sheets of facts, sentences. Nothing here needs a terminal.

Front door: `summary`, the same facts as plain text; the other modules are for the screens.
"""
