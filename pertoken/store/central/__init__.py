"""A fleet's PostgreSQL server: logins and rights of hosts, day partitions, and Citus.

Front door: `logins`, `roles`, `partitions`, `citus`.
"""
