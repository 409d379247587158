"""Commands of what leaves the screens: reports, alerts, price maps and the MCP server."""
