"""From readings to rows: what changed between two ticks. Pure functions and frozen values.

Front door: `assemble`, `devices`, `engines`, `restored_state`, `tick_state`.
"""
