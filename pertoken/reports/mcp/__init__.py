"""Read-only MCP server over stdio: costs, savings, verdicts and refusals.

Front door: `replies` (`Replies`) and `server` (`server_of`, which needs the extra `mcp`).
"""
