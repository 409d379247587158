"""Which rows and columns of a table are shown: filters, and the choice of columns."""
