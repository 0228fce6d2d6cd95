"""Rows of a database table as a stream: SQLite and PostgreSQL."""
