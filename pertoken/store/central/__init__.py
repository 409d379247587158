"""A fleet's PostgreSQL server: logins and rights of hosts, and day partitions.

Front door: `logins`, `roles`, `partitions`.
"""
