"""Levers of a plan: variants of recommendations, the subjects that each touches, and their conflicts.

Front door: `lever` (`Lever`, `levers`), `reach` (`covers`), `groups` (`groups`), and
`conflicts`.
"""
