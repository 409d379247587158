"""Alerts: figures compared with limits every minute; an event is sent when an alert fires and when it resolves.

Front door: `watch` (`AlertWatch`, one round), `state` (`AlertState`) and `send` (`send_test`).
"""
