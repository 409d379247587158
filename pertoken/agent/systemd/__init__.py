"""Agent and advisor as systemd services.

Front door: `service` (install and remove one, its state), `notify` (report readiness to systemd).
"""
