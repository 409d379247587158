"""Generated fleets: a database with history, problems that were planted in it, and what mending them would truly save.

Front door:

- `making`: `make`, a fleet in a database of its own.
- `mark`: whether a database is a demo, and where the default one lies.
- `truth`: what was planted, as `pertoken demo --truth` writes it.
- `later`: `advance`, more time of a demo, with a change made.
- `live`: a demo that goes on while its screens are open.

The world it simulates (`simulator`) shares the catalog and the forecast's term formulas with the rules, and no more.
"""
