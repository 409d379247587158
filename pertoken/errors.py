"""Errors meant for a person: each message says what happened, to what, and what to do next."""


class PertokenError(Exception):
    """Something the person can mend. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class BadInput(PertokenError):
    """A setting, an option or a file was wrong."""

    exit_code = 2


class StoreError(PertokenError):
    """The database is missing, of another version, in use, or cannot be read."""


class CorruptStore(StoreError):
    """The database is damaged: its pages cannot be read, or it is no database."""


class FullStore(StoreError):
    """There is no room for what was to be stored."""
