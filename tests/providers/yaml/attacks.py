"""Texts that try to become something else than a value."""

from __future__ import annotations

from itertools import product

CLOSERS = (
    "", "'", '"', "`", "]", ")", "')", '")', "'))", "\\'", "\\", "''", "x'", "1", "1)", "{table}", ":name", "%s", "*/",
    "＇",
)  # fmt: skip
PAYLOADS = (
    "; DROP TABLE customers; --", "; DELETE FROM customers; --", " OR 1=1 --", " OR 'a'='a", " OR ''='", ' OR ""="',
    " UNION SELECT name, sales FROM suppliers --", " UNION ALL SELECT sql, 1 FROM sqlite_master --",
    " UNION SELECT usename, 1 FROM pg_user --", "/**/OR/**/1=1", " AND 1=(SELECT COUNT(*) FROM suppliers)",
    "; ATTACH DATABASE 'evil.db' AS evil; --", "; PRAGMA writable_schema=1; --", "; COPY customers TO PROGRAM 'id'; --",
    "; SELECT pg_sleep(100); --", "; COMMIT; DROP TABLE sales; --", " || (SELECT name FROM customers LIMIT 1) || ",
    "\n; INSERT INTO customers VALUES ('x', 1); --", " -- ", " /* ", " #", "; SET ROLE postgres; --",
    " RETURNING *", "$$; DROP TABLE customers; $$", " LIMIT 1 OFFSET 1; DROP TABLE customers",
)  # fmt: skip

INJECTIONS = [closer + payload for closer, payload in product(CLOSERS, PAYLOADS)]
"""Five hundred of them."""

WRONG_TYPES = [True, False, None, 1.5, "1", "1; DROP TABLE customers", [], [1], {}, {"a": 1}, 10**400, float("inf")]

SHELL = (
    "; touch {file}", "$(touch {file})", "`touch {file}`", "| touch {file}", "& touch {file}", "&& touch {file}",
    "\ntouch {file}\n", "' ; touch {file} ; '", '" ; touch {file} ; "', "> {file}", ">{file}", "$HOME", "*", "~", "a b",
    "{{count}}", "{rest}", "%PATH%", "é ’ 漢", "\t", "",
)  # fmt: skip
OPTIONS = ("-x", "--output={file}", "--exec=touch {file}", "-", "--", "-o{file}", "-\n", "--upload-pack=touch {file}")
