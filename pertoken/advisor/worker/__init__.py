"""Rules in separate processes: a failing rule affects only its own process. This program's own rules share theirs.

Front door:

- `worker.run`: `run_plugins` loads plugins and runs their rules; without `Inputs` it only loads them. `run_job` runs
  any other job under the same restrictions.
- `worker.child`: `Source`, a plugin as a worker loads it; inputs of rules, resource limits, and `Confinement`, the
  kernel restrictions of a plugin's rules; messages of a worker, and tracebacks as text.
"""
