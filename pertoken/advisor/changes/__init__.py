"""A difference of two fleets in words and commands: its title, what to run, and how to undo it.

Front door: `title`, `commands`. `kubernetes` and `timers` write what `commands` asks for.
"""
