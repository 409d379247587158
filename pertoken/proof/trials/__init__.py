"""Trials: a change on one replica beside an unchanged one, or switched on and off, before it goes everywhere.

pertoken executes no change: a person restarts engines by printed commands, and telemetry shows when that was done.

Front door:

- `trials.trial`: `Trial` with its `Design`, `Status` and result, and trials in the database.
- `trials.look`: `planned`, the design of a trial; `observe`, its telemetry; `advanced`, the trial after that;
  `check_quality`, the quality check of a person, run as a command.
- `trials.endpoint`: `paired` and `switched`, the difference between both arms; comparison of live servers.
"""
