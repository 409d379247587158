"""The week in at most 25 lines, each with the command that shows its evidence.

Front door: `weekly` (`weekly_lines`).
"""
