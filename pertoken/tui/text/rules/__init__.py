"""Rules as text: lines of a table, and details of one."""
