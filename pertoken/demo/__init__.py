"""Generated fleets: a database with history, planted problems, and the true saving of fixing each of them.

Front door:

- `making`: `make`, a fleet in a database of its own.
- `place`: whether a database may be replaced by a demo, and where a demo's settings are.
- `fleet`: `truth`, the planted problems, as `pertoken demo --truth` writes them.
- `live`: `Live`, ticks written while the screens of a demo are open; `follow`, accepted advice on followed problems.

The `simulator` shares only the catalog and the forecast's term formulas with the rules.
"""
