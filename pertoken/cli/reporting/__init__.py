"""Commands that write or send figures elsewhere: reports, alerts, price maps, MCP server, gates."""
