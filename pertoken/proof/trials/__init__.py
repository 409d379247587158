"""Trials: a change on one replica beside an unchanged one, or switched on and off, before it goes everywhere.

pertoken executes no change: a person restarts engines by printed commands, and telemetry shows when that was done.

Front door:

- `trials.trial`: `Trial` with its `Design`, `Status` and result, as stored.
- `trials.plan`: `planned`, the design of a trial by what runs.
- `trials.progress`: `observe`, what telemetry shows of a trial, and `advanced`, the trial after that.
- `trials.compare`: the difference between both arms, from minutes alone.
- `trials.quality`: the quality check of a person, run as a command.
- `trials.stored`: trials in the database.
"""
