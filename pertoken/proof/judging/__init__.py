"""Judging: when a change is verified, what its verdict moves, and the receipts that are stored of it.

Front door:

- `judging.judge`: `judge_changes`, which an advisor run calls; `judge_pending` with any `Judge`.
- `judging.verifier`: `Verifier`, the judge that verifies changes by stored hours.
- `judging.receipts`: `StoredReceipt`, in the database beside the hours it was made of, and its `Check`.
- `judging.prospect`: what could be proven of a recommendation before it is accepted.
- `judging.record`: the track record of each rule, from stored receipts.
"""
