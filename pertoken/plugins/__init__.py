"""Built-in rules, one in each file, grouped by what they change; they propose only through `pertoken.rule`.

Front door: none. The advisor loads them by their entry points, like rules of other distributions.
"""
