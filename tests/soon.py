"""The program with shorter periods of its jobs in the background, so that a test waits seconds instead of a minute.

`[*SOON, "agent", ...]` is the command line of a process in which nothing else differs from `pertoken agent ...`.
"""

import sys

SOON = (sys.executable, "-P", __file__)
PERIOD_S = 2.0


def main() -> None:
    """Run the command line."""
    from pertoken import cli
    from pertoken.agent import recorder
    from pertoken.exposition import otlp
    from pertoken.reports.alerts import watch

    recorder.LOOK_S = otlp.PUSH_EVERY_S = watch.EVERY_S = PERIOD_S
    cli.main(prog_name="pertoken")


if __name__ == "__main__":
    main()
