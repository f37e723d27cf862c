-- A registry of tools in Teradata. It can be run again; a table that is already there is told by the error 3803, which
-- does no harm. The database must exist, and to show types and parameters it must be allowed to pass them on:
--   GRANT SELECT ON DBC.ColumnsV TO {schema} WITH GRANT OPTION
--   GRANT SELECT ON DBC.FunctionsV TO {schema} WITH GRANT OPTION
--
-- To register an object, insert one row into mcp_tools, one into mcp_tool_users for the database user of the gateway,
-- or PUBLIC, and one into mcp_user_grants for each caller who may see it, or *. Parameters and columns come from the data dictionary; rows in mcp_tool_params choose among the
-- columns of a table or view, explain them, and say which are required. For a function, TableName is its specific name.

CREATE MULTISET TABLE {schema}.mcp_tools (
  ToolName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  DataBaseName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  TableName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  ToolType CHAR(1) CHARACTER SET LATIN NOT NULL,
  docstring VARCHAR(8000) CHARACTER SET UNICODE,
  Tags VARCHAR(1000) CHARACTER SET UNICODE,
  Writes CHAR(1) CHARACTER SET LATIN
) UNIQUE PRIMARY INDEX (ToolName);

CREATE MULTISET TABLE {schema}.mcp_tool_params (
  ToolName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  ParamName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  ParamRequired CHAR(1) CHARACTER SET LATIN,
  ParamComment VARCHAR(1000) CHARACTER SET UNICODE
) UNIQUE PRIMARY INDEX (ToolName, ParamName);

CREATE MULTISET TABLE {schema}.mcp_tool_users (
  ToolName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  DatabaseUser VARCHAR(128) CHARACTER SET UNICODE NOT NULL
) UNIQUE PRIMARY INDEX (ToolName, DatabaseUser);

CREATE MULTISET TABLE {schema}.mcp_user_grants (
  ToolName VARCHAR(128) CHARACTER SET UNICODE NOT NULL,
  UserName VARCHAR(128) CHARACTER SET UNICODE NOT NULL
) UNIQUE PRIMARY INDEX (ToolName, UserName);

REPLACE VIEW {schema}.mcp_list_tools AS
SELECT DISTINCT t.ToolName, t.DataBaseName, t.TableName, t.ToolType, t.docstring, t.Tags, t.Writes,
  CASE WHEN f.FunctionType = 'R' THEN 'Y' ELSE 'N' END AS ReturnsRows
FROM {schema}.mcp_tools AS t
LEFT JOIN DBC.FunctionsV AS f
  ON t.ToolType = 'F' AND f.DatabaseName = t.DataBaseName AND f.SpecificName = t.TableName
WHERE t.ToolName IN (
  SELECT u.ToolName FROM {schema}.mcp_tool_users AS u WHERE UPPER(u.DatabaseUser) IN (UPPER(USER), 'PUBLIC')
);

-- A parameter that cannot be NULL is required; a column of a table or view is when mcp_tool_params says so.
REPLACE VIEW {schema}.mcp_list_toolParams AS
SELECT t.ToolName, c.ColumnName AS ParamName, c.ColumnType AS ParamType,
  CASE
    WHEN c.ColumnType IN ('D', 'N') AND c.DecimalTotalDigits > 0
      THEN TRIM(c.DecimalTotalDigits) || ',' || TRIM(c.DecimalFractionalDigits)
    WHEN c.ColumnType IN ('CF', 'CV') AND c.CharType = 2 THEN TRIM(c.ColumnLength / 2)
    WHEN c.ColumnType IN ('CF', 'CV', 'BF', 'BV') THEN TRIM(c.ColumnLength)
  END AS ParamLength,
  ROW_NUMBER() OVER (PARTITION BY t.ToolName ORDER BY c.ColumnId) AS ParamPosition,
  COALESCE(p.ParamRequired, CASE WHEN t.ToolType IN ('F', 'M') AND c.Nullable = 'N' THEN 'Y' ELSE 'N' END)
    AS ParamRequired,
  COALESCE(p.ParamComment, c.CommentString) AS ParamComment
FROM {schema}.mcp_list_tools AS t
JOIN DBC.ColumnsV AS c ON c.DatabaseName = t.DataBaseName AND c.TableName = t.TableName
LEFT JOIN {schema}.mcp_tool_params AS p ON p.ToolName = t.ToolName AND p.ParamName = c.ColumnName
WHERE (c.SPParameterType IS NULL OR c.SPParameterType IN ('I', 'B'))
  AND (
    p.ToolName IS NOT NULL OR t.ToolType IN ('F', 'M')
    OR t.ToolName NOT IN (SELECT o.ToolName FROM {schema}.mcp_tool_params AS o)
  );

REPLACE VIEW {schema}.mcp_list_toolUsers AS
SELECT g.ToolName, g.UserName
FROM {schema}.mcp_user_grants AS g JOIN {schema}.mcp_list_tools AS t ON t.ToolName = g.ToolName;

GRANT SELECT ON {schema}.mcp_list_tools TO PUBLIC;
GRANT SELECT ON {schema}.mcp_list_toolParams TO PUBLIC;
GRANT SELECT ON {schema}.mcp_list_toolUsers TO PUBLIC;

-- Samples: a table, a view, a function and a macro, all of them registered for everybody.

CREATE MULTISET TABLE {schema}.sample_sales (
  id INTEGER NOT NULL,
  region VARCHAR(20) CHARACTER SET UNICODE NOT NULL,
  product VARCHAR(40) CHARACTER SET UNICODE NOT NULL,
  amount DECIMAL(10, 2) NOT NULL,
  sold_on DATE FORMAT 'YYYY-MM-DD' NOT NULL
) UNIQUE PRIMARY INDEX (id);
DELETE FROM {schema}.sample_sales;
INSERT INTO {schema}.sample_sales VALUES (1, 'north', 'lamp', 120.00, DATE '2026-01-05');
INSERT INTO {schema}.sample_sales VALUES (2, 'north', 'desk', 480.50, DATE '2026-02-11');
INSERT INTO {schema}.sample_sales VALUES (3, 'south', 'lamp', 95.25, DATE '2026-02-12');
INSERT INTO {schema}.sample_sales VALUES (4, 'south', 'chair', 210.00, DATE '2026-03-01');

REPLACE VIEW {schema}.sample_sales_by_region AS
SELECT region, COUNT(*) AS sales, SUM(amount) AS revenue FROM {schema}.sample_sales GROUP BY region;

REPLACE MACRO {schema}.sample_sales_since (since DATE) AS (
  SELECT region, SUM(amount) AS revenue FROM {schema}.sample_sales WHERE sold_on >= :since GROUP BY region;
);

REPLACE FUNCTION {schema}.sample_margin (price DECIMAL(10, 2), cost DECIMAL(10, 2))
RETURNS DECIMAL(10, 2) LANGUAGE SQL CONTAINS SQL DETERMINISTIC SPECIFIC sample_margin
SQL SECURITY DEFINER COLLATION INVOKER INLINE TYPE 1 RETURN price - cost;

GRANT SELECT ON {schema}.sample_sales TO PUBLIC;
GRANT SELECT ON {schema}.sample_sales_by_region TO PUBLIC;
GRANT EXECUTE ON {schema}.sample_sales_since TO PUBLIC;
GRANT EXECUTE FUNCTION ON {schema}.sample_margin TO PUBLIC;

DELETE FROM {schema}.mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
INSERT INTO {schema}.mcp_tools VALUES ('sample_sales', TRIM(BOTH '"' FROM '{schema}'), 'sample_sales', 'T',
  'Sales of a small shop, one row each.', 'sample, sales', NULL);
INSERT INTO {schema}.mcp_tools VALUES ('sample_sales_by_region', TRIM(BOTH '"' FROM '{schema}'),
  'sample_sales_by_region', 'V', 'How many sales each region has, and what they brought.', 'sample, sales', NULL);
INSERT INTO {schema}.mcp_tools VALUES ('sample_sales_since', TRIM(BOTH '"' FROM '{schema}'), 'sample_sales_since', 'M',
  'What each region has sold since a day.', 'sample, sales', 'N');
INSERT INTO {schema}.mcp_tools VALUES ('sample_margin', TRIM(BOTH '"' FROM '{schema}'), 'sample_margin', 'F',
  'What is left of a price after its cost.', 'sample', 'N');
DELETE FROM {schema}.mcp_tool_params
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
INSERT INTO {schema}.mcp_tool_params VALUES ('sample_sales_since', 'since', 'Y', 'The first day that counts');
DELETE FROM {schema}.mcp_tool_users
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
INSERT INTO {schema}.mcp_tool_users
SELECT ToolName, 'PUBLIC' FROM {schema}.mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
DELETE FROM {schema}.mcp_user_grants
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
INSERT INTO {schema}.mcp_user_grants
SELECT ToolName, '*' FROM {schema}.mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_sales_since', 'sample_margin');
