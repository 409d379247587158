"""Text of dollars: the bill, hours, spend, invoices."""
