"""Gates: figures compared with limits, for CI (`--fail-on`) and for alerts.

Front door: `written` (`read_gates`), `measure` (`Figures`, measured values) and `gate` (`judge`, gates over it).
"""
