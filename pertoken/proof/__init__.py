"""Proof of savings: recommendations and their lifecycle, verification, receipts, track record.

Front door:

- `proof.recommendation`: `Recommendation` with its `State`, its `Variant`s and `Refusal`s, as stored, listed and shown.
- `proof.lifecycle`: the legal moves between states, as a table, and `moved`.
- `proof.acts`: what a person does with a recommendation: accept, snooze, dismiss, reopen, declare, roll back.
- `proof.findings`: `keep`, which merges what an advice run found with what is stored.
- `proof.stored`: `standing` and `find`, recommendations in the database, and `store_acts`, which writes acts.
- `proof.changes`: changes of epochs between two looks, and what they apply.
- `proof.detection`: `detect`, which stores them as moves and verdicts.
- `proof.verdicts`: `Verdict` on one change, and its `Judgement`.
- `proof.judging`: `judge.judge_changes`, which verifies changes whose time has come and stores their receipts.
- `proof.journal`: every move and recorded change of one recommendation.
- `proof.verification.question`: `Question`, `Promise`, `Event` and `Cycle`, the input of a verification.
- `proof.verification.verify`: `verify`, from a question to a `Finding` with its verdict.
- `proof.verification.detectable`: `detectable`, the smallest saving that a history can prove, and the days it takes.
- `proof.verification.recheck`: `recheck`, whether a saving still stands.
- `proof.verification.release`: `verify_release`, whether the service went on after devices were released.
- `proof.verification.adapter`: `question`, the hours of two windows as a question.
- `proof.receipts.receipt`: `Receipt`, a finding with its dollars, as JSON; `proof.receipts.markdown` for people;
  `proof.receipts.inputs`, a question as text, from which a receipt is made again.
- `proof.track_record`: realised over promised savings by rule and regime.
"""
