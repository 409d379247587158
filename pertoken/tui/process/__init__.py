"""Use of the process by the screens: CPU time (`pace`), idle time (`idle`) and terminal (`terminal`)."""
