"""Values of settings: how each is read, checked and refused; `pertoken.config` is the table of all of them.

Front door:

- `settings.values`: one reader for each kind of value, which explains what it must be.
- `settings.fleet`: services, hosts, commitments, gateways and tenants, which a person describes as tables.
- `settings.keys`: `Setting`, the names of a key, and how its value is read from a file, the environment or an option.
- `settings.rules`: options of rules, and the tables `[rules.ID]` that set them.
"""
