"""Proof of savings: recommendations and their lifecycle, verification, receipts, track record.

Front door:

- `proof.recommendation`: `Recommendation` with its `State`, its `Variant`s and `Refusal`s, as stored, listed and shown;
  the legal moves between states, as a table, and the acts of a person: accept, snooze, dismiss, reopen, declare.
- `proof.stored`: `standing` and `find`, recommendations in the database; `store_acts`; `keep`, which merges the results
  of an advice run.
- `proof.detection`: `detect`, which stores changes of epochs as moves and verdicts; `journal` of one recommendation.
- `proof.verdicts`: `Verdict` on one change, and its `Judgement`.
- `proof.judging`: `judge.judge_changes`, which verifies due changes and stores their receipts.
- `proof.trials`: a change on one replica, before it goes everywhere.
- `proof.troubles`: `with_troubles`, which adds present troubles to a report of the fleet.
- `proof.verification.question`: `Question`, `Promise`, `Event` and `Cycle`, the input of a verification.
- `proof.verification.adapter`: `question`, which makes a question from two windows.
- `proof.verification.verify`: `verify` returns a `Finding` with its verdict; `verify_release`, whether the service
  continued after a release of devices; `detectable`, the smallest provable saving; `recheck`, whether a saving decayed.
- `proof.receipt`: `Receipt`, a finding with its dollars, and its question, as JSON.
- `proof.track_record`: realised over promised savings by rule and regime.
"""
