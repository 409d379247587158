"""Levers of a plan: variants of recommendations, what each touches, and which exclude each other.

Front door: `lever` (`Lever`, `levers`), `reach` (`covers`), `groups` (`groups`), and
`conflicts`.
"""
