"""The agent: measures a host, its devices and its inference servers, and records them.

Front door: `daemon` (run it), `once` (measure without storing), `doctor` (what can be measured), `sampler.drivers`,
`systemd.service`. Each package below states its own front door; import-linter holds all of them.
"""
