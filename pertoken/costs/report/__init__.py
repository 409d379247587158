"""The report of a fleet over a window, for the screens, the summary and advice.

Front door: `fleet_report` (the report of a store), `lines` (its values) and `figures` (those beside
dollars per Mtok, by model).
"""
