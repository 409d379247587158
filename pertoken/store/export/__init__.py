"""Tables in and out of a database as files.

Front door: `columns` (rows of one table in slices), `files` (CSV and Parquet).
"""
