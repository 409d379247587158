"""SQL tables, writing, reading, roll-ups, and which schema a database has."""
