"""Alerts: figures held against limits each minute, sent once when they begin to hold and once when they end.

Front door: `watch` (`AlertWatch`, one round), `state` (`AlertState`) and `send` (`send_test`).
"""
