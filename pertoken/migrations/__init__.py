"""Alembic environment and versions of both groups of tables."""
