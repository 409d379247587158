"""Costs, savings, verdicts and refusals for models, by the Model Context Protocol over stdio. Nothing is ever written.

Front door: `answers` (`Answers`) and `server` (`server_of`, which needs the extra `mcp`).
"""
