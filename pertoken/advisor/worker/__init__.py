"""Rules in processes of their own: whatever a rule does, its own process alone suffers it.

Front door:

- `worker.run`: `run_plugins` loads plugins and runs their rules; without `Inputs` it only loads them.
- `worker.job`: `run_job` runs any other job under the same restrictions.
- `worker.source`: `Source`, a place that rules are loaded from.
- `worker.inputs`, `worker.limits`: what rules are given, and how much they may use.
- `worker.confine`: `Confinement`, what the kernel kept the rules of a plugin from.
- `worker.wire`: states as JSON.
"""
