"""What Alembic runs around the migrations: they share the transaction of whoever asked for them."""

from __future__ import annotations

from alembic import context

# SQLite can undo a changed table like any other change; Alembic assumes that it cannot.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
