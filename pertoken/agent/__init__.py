"""The agent: measures a host, its devices and its inference servers, and records them.

Front door: `daemon` (run it), `doctor` (measure without storing, findings on this host), `sampler.client`, `systemd`.
Each package below states its own front door; import-linter holds all of them.
"""
