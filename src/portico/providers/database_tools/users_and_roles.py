"""Tools that tell who may do what in the database, where the database knows users."""

from __future__ import annotations

from typing import Any

from portico.domain.suggestions import nearest_names
from portico.errors import InvalidArguments
from portico.providers.python.decorator_and_injection import tool
from portico.providers.sql import ReadConnection

_ROLES = (
    "SELECT r.rolname AS role, r.rolcanlogin AS can_login, r.rolsuper AS superuser, r.rolcreatedb AS create_database, "
    "r.rolcreaterole AS create_role, "
    "ARRAY(SELECT g.rolname FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid "
    "WHERE m.member = r.oid ORDER BY 1) AS member_of "
    "FROM pg_catalog.pg_roles r WHERE :name = '' OR r.rolname = :name ORDER BY 1"
)
_GRANTS = (
    "SELECT n.nspname AS schema, c.relname AS object, a.privilege_type AS privilege, a.is_grantable AS grantable "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a "
    "JOIN pg_catalog.pg_roles r ON r.oid = a.grantee "
    "WHERE r.rolname = :name AND c.relkind IN ('r', 'p', 'v', 'm', 'f') "
    "AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2, 3"
)
_EFFECTIVE = (
    "SELECT n.nspname AS schema, c.relname AS object, p.privilege AS privilege "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE')) AS p(privilege) "
    "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT LIKE 'pg\\_%' "
    "AND n.nspname <> 'information_schema' AND has_schema_privilege(:name, n.oid, 'USAGE') "
    "AND has_table_privilege(:name, c.oid, p.privilege) ORDER BY 1, 2, 3"
)


@tool(read_only=True, idempotent=True)
def handle_sec_userRoles(conn: ReadConnection, user_name: str = "") -> dict[str, Any]:  # noqa: N802
    """Shows the users and roles of the database and the roles that each is a member of.

    Arguments:
      user_name - User or role name; empty for all of them
    """
    if conn.dialect != "postgresql":
        return _no_users(conn)
    if user_name:
        _known(conn, user_name)
    return {"roles": conn.rows(_ROLES, {"name": user_name}).records()}


@tool(read_only=True, idempotent=True)
def handle_sec_rolePermissions(conn: ReadConnection, role_name: str) -> dict[str, Any]:  # noqa: N802
    """Shows the permissions that were granted to one role itself, by table.

    Arguments:
      role_name - Role or user name
    """
    if conn.dialect != "postgresql":
        return _no_users(conn)
    _known(conn, role_name)
    return _answer(role_name, conn, _GRANTS)


@tool(read_only=True, idempotent=True)
def handle_sec_userDbPermissions(conn: ReadConnection, user_name: str) -> dict[str, Any]:  # noqa: N802
    """Shows what a user may really do with each table, inherited permissions included.

    Arguments:
      user_name - User or role name
    """
    if conn.dialect != "postgresql":
        return _no_users(conn)
    _known(conn, user_name)
    return _answer(user_name, conn, _EFFECTIVE)


def _answer(name: str, conn: ReadConnection, sql: str) -> dict[str, Any]:
    found = conn.rows(sql, {"name": name})
    answer: dict[str, Any] = {"name": name, "permissions": found.records(), "truncated": found.truncated}
    return {**answer, "next": found.note} if found.note else answer


def _known(conn: ReadConnection, name: str) -> None:
    if not conn.rows("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = :name", {"name": name}).rows:
        names = [row[0] for row in conn.rows("SELECT rolname FROM pg_catalog.pg_roles ORDER BY 1").rows]
        near = ", ".join(nearest_names(name, names, 5, 50.0) or names[:5])
        raise InvalidArguments("name", details=(f"no user or role is called {name[:100]!r}; there are: {near}",))


def _no_users(conn: ReadConnection) -> dict[str, Any]:
    if conn.dialect == "sqlite":
        reason = "SQLite has no users, roles or grants: who can read the file can read everything in it."
    else:
        reason = f"Roles and grants are read from PostgreSQL only; ask {conn.dialect} with base_readQuery."
    return {"supported": False, "dialect": conn.dialect, "reason": reason}
