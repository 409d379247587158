"""`pertoken prices`: prices that people set, and list prices that they import."""
