"""The team's pages: read-only HTML over HTTP, from the figures of reports, by the advisor service.

Front door: `server` (`TeamServer`, `Login`) and `pages` (`TeamPages`).
"""
