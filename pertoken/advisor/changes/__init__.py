"""Description of a difference of two fleets: its title, the commands that apply it, and those that undo it.

Front door: `title`, `commands`; `servers` writes the commands of moves for `commands`.
"""
