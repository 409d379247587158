"""A report as text: Markdown, and CSV of the chargeback.

Front door: `markdown` (`markdown`) and `chargeback` (`chargeback_csv`).
"""
