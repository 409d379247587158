"""Values of settings: how each is read, checked and refused; `pertoken.config` is the table of all of them.

Front door:

- `settings.values`: `Setting`, the names of a key; a reader for each kind of value, which explains what it must be.
- `settings.fleet`: services, hosts, commitments, gateways, tenants and readers of pages, listed by a person as tables.
- `settings.rules`: options of rules, and the tables `[rules.ID]` that set them.
"""
