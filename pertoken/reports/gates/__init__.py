"""Gates: figures held against limits, for CI (`--fail-on`) and for alerts.

Front door: `written` (`read_gates`), `measure` (`Figures`, what is measured) and `gate` (`judge`, gates over it).
"""
