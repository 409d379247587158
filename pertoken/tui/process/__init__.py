"""Use of the process by the screens: CPU time (`pace`) and terminal (`terminal`)."""
