"""Bills of clouds: read from their exports, compared with what was computed, and turned into prices.

Front door: `parts` (`read_bill`), `read` (`read_invoice`), `reconcile` (`reconcile`, `Reconciliation`) and `billed`
(prices of an invoice).
"""
