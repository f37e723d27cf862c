"""What is stored between starts: SQLite by default, PostgreSQL for many replicas."""
