"""The built-in rules, one in each file by what they change; they propose only through `pertoken.rule`.

Front door: none. The advisor loads them by their entry points, as anyone's.
"""
