"""The agent as a systemd service.

Front door: `service` (install and remove it, its state), `notify` (report readiness to it).
"""
