"""A lake: closed hours of many databases as Parquet files, and the questions asked of all of them together.

Front door:

- `publish`: `publish`, which writes the days of one cell.
- `reading`: `open_lake`, which finds the current files of a range of days and checks them.
- `questions`: one Ibis expression for each question.
- `engines`: DuckDB in this process, or a Spark cluster.
- `upkeep`: what is deleted, and when.
"""
