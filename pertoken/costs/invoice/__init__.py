"""Bills of clouds: read from their exports, compared with what was computed, and turned into prices.

Front door: `read` (`read_bill`, `read_invoice`) and `reconcile` (`reconcile`, `Reconciliation`).
"""
