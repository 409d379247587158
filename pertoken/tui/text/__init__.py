"""Content of the screens as plain values: columns of tables, sheets of facts, sentences. No module needs a terminal.

Front door: `summary`, the same facts as plain text; the other modules are for the screens.
"""
