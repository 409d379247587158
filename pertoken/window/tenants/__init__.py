"""Tokens that gateways counted for tenants: `tokens`."""
