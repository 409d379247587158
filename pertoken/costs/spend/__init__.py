"""Dollars by day and month: what was spent, what a month will cost, and the budget.

Front door: `month` (`month_spend` of a store) and `outlook` (the end of a month by the days before).
"""
