"""Judging: verification of due changes, the moves that verdicts make, and stored receipts.

Front door:

- `judging.judge`: `read_history`, stored advice with what followed it; `judge_changes`, which an advisor run calls;
  `judge_pending` with any `Judge`.
- `judging.verifier`: `Verifier`, the judge that verifies changes by stored hours; `prospects`, the provable saving of a
  recommendation before it is accepted.
- `judging.receipts`: `StoredReceipt`, in the database beside its hours, and its `Check`; `records` of each rule.
"""
