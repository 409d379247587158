"""From readings to rows: the changes between two ticks. Pure functions and frozen values.

Front door: `assemble`, `devices`, `engines`, `restored_state`, `tick_state`.
"""
