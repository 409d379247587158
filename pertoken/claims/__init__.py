"""Claims of the field, checked with the catalog and the forecast, on a reference or on a fleet.

Front door: `checking.checked` (verdicts), `fleet.on_fleet` (figures of services) and `fleet.claims_text` (text).
"""
