"""`python -m pertoken`."""

from pertoken.cli import main

main()
