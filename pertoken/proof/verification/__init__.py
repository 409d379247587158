"""Effect of a change on the cost of a token: values in, values out, and no database.

`docs/how-savings-are-proven.md` describes the method for readers; each module gives the formula and its source.
"""
