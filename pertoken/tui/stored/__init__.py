"""A pertoken database as the screens read it. `pertoken.tui.store_source` is the front door."""
