"""Delivery to webhooks and by mail.

Front door: `webhook` (`post`), `mail` (`send`) and `secret` (`read_secret`).
"""
