"""Proof of savings: recommendations and their lifecycle, verification, receipts, track record.

Front door:

- `proof.recommendation`: `Recommendation` with its `State`, its `Variant`s and `Refusal`s, as stored, listed and shown.
- `proof.lifecycle`: the legal moves between states, as a table, and `moved`.
- `proof.lifecycle`: decisions of a person on a recommendation: accept, snooze, dismiss, reopen, declare, roll back.
- `proof.stored`: `keep`, which merges the findings of an advice run into the stored recommendations.
- `proof.stored`: `standing` and `find`, recommendations in the database, and `store_acts`, which writes acts.
- `proof.verdicts`: changes of epochs since the last check, and the recommendations that they apply.
- `proof.detection`: `detect`, which stores these changes as moves and verdicts.
- `proof.verdicts`: `Verdict` on one change, and its `Judgement`.
- `proof.judging`: `judge.judge_changes`, which verifies due changes and stores their receipts.
- `proof.troubles`: `with_troubles`, which adds to a report of the fleet what is wrong now.
- `proof.detection`: every move and recorded change of one recommendation.
- `proof.verification.question`: `Question`, `Promise`, `Event` and `Cycle`, the input of a verification.
- `proof.verification.verify`: `verify`, which answers a question with a `Finding` and its verdict.
- `proof.verification.verify`: `detectable`, the smallest saving that a history can prove, and the days until then.
- `proof.verification.verify`: `recheck`, whether a proven saving has decayed.
- `proof.verification.verify`: `verify_release`, whether the service continued after devices were released.
- `proof.verification.adapter`: `question`, which makes a question from two windows.
- `proof.receipt`: `Receipt`, a finding with its dollars, as JSON; `text.receipt` for people;
  `proof.receipt`, a question as text, which reproduces its receipt.
- `proof.track_record`: realised over promised savings by rule and regime.
"""
