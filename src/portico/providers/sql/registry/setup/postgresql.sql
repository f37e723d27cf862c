-- A registry of tools in PostgreSQL. It can be run again: what is there stays as it is.
--
-- To register an object, insert one row into mcp_tools, one for each parameter into mcp_tool_params (a table or view
-- without any offers all its columns), one into mcp_tool_users for the database user of the gateway, or PUBLIC, and one
-- into mcp_user_grants for each caller who may see it, or *.

CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.mcp_tools (
  ToolName text PRIMARY KEY,
  DataBaseName text NOT NULL,
  TableName text NOT NULL,
  ToolType text NOT NULL CHECK (ToolType IN ('F', 'M', 'T', 'V')),
  docstring text,
  Tags text,
  -- Whether it writes: Y or N. Nothing said means N.
  Writes text CHECK (Writes IN ('Y', 'N'))
);

CREATE TABLE IF NOT EXISTS {schema}.mcp_tool_params (
  ToolName text NOT NULL REFERENCES {schema}.mcp_tools ON UPDATE CASCADE ON DELETE CASCADE,
  ParamName text NOT NULL,
  -- A code such as CV, I or DA, or a name such as integer or numeric(10,2).
  ParamType text NOT NULL,
  ParamLength text,
  ParamPosition integer CHECK (ParamPosition > 0),
  -- Nothing said means that a parameter with a default is optional, and one without is required.
  ParamRequired text CHECK (ParamRequired IN ('Y', 'N')),
  ParamComment text,
  PRIMARY KEY (ToolName, ParamName)
);

-- Which database users the tools are shown to; PUBLIC means all of them.
CREATE TABLE IF NOT EXISTS {schema}.mcp_tool_users (
  ToolName text NOT NULL REFERENCES {schema}.mcp_tools ON UPDATE CASCADE ON DELETE CASCADE,
  DatabaseUser text NOT NULL,
  PRIMARY KEY (ToolName, DatabaseUser)
);

-- Which people and agents may see a tool; * means all of them.
CREATE TABLE IF NOT EXISTS {schema}.mcp_user_grants (
  ToolName text NOT NULL REFERENCES {schema}.mcp_tools ON UPDATE CASCADE ON DELETE CASCADE,
  UserName text NOT NULL,
  PRIMARY KEY (ToolName, UserName)
);

CREATE OR REPLACE VIEW {schema}.mcp_list_tools AS
SELECT t.ToolName, t.DataBaseName, t.TableName, t.ToolType, t.docstring, t.Tags, t.Writes,
  CASE WHEN EXISTS (
    SELECT 1 FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
    WHERE t.ToolType = 'F' AND n.nspname = t.DataBaseName AND f.proname = t.TableName AND f.proretset
  ) THEN 'Y' ELSE 'N' END AS ReturnsRows
FROM {schema}.mcp_tools t
WHERE EXISTS (
  SELECT 1 FROM {schema}.mcp_tool_users u
  WHERE u.ToolName = t.ToolName AND u.DatabaseUser IN (CURRENT_USER, 'PUBLIC')
);

CREATE OR REPLACE VIEW {schema}.mcp_list_toolParams AS
SELECT d.ToolName, d.ParamName, d.ParamType, d.ParamLength, d.ParamPosition,
  COALESCE(d.ParamRequired, CASE WHEN d.HasDefault OR d.ToolType IN ('T', 'V') THEN 'N' ELSE 'Y' END) AS ParamRequired,
  d.ParamComment,
  CASE WHEN d.HasDefault THEN 'Y' ELSE 'N' END AS ParamDefault
FROM (
  SELECT p.ToolName, p.ParamName, p.ParamType, p.ParamLength, p.ParamPosition, p.ParamRequired, p.ParamComment,
    t.ToolType,
    EXISTS (
      SELECT 1 FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
      WHERE t.ToolType IN ('F', 'M') AND n.nspname = t.DataBaseName AND f.proname = t.TableName
        AND p.ParamPosition > f.pronargs - f.pronargdefaults AND p.ParamPosition <= f.pronargs
    ) AS HasDefault
  FROM {schema}.mcp_list_tools t JOIN {schema}.mcp_tool_params p ON p.ToolName = t.ToolName
) d
UNION ALL
SELECT t.ToolName, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), NULL, a.attnum::integer, 'N',
  pg_catalog.col_description(a.attrelid, a.attnum), 'Y'
FROM {schema}.mcp_list_tools t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.DataBaseName
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.TableName
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE t.ToolType IN ('T', 'V')
  AND NOT EXISTS (SELECT 1 FROM {schema}.mcp_tool_params p WHERE p.ToolName = t.ToolName)
  AND a.attname ~ '^[A-Za-z_][A-Za-z0-9_$#]*$'
  AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT');

CREATE OR REPLACE VIEW {schema}.mcp_list_toolUsers AS
SELECT g.ToolName, g.UserName
FROM {schema}.mcp_user_grants g JOIN {schema}.mcp_list_tools t ON t.ToolName = g.ToolName;

-- A gateway that listens on the channel portico_registry learns of every change at once.
CREATE OR REPLACE FUNCTION {schema}.mcp_tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_notify('portico_registry', TG_TABLE_SCHEMA);
  RETURN NULL;
END
$$;
DROP TRIGGER IF EXISTS mcp_tell_change ON {schema}.mcp_tools;
CREATE TRIGGER mcp_tell_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {schema}.mcp_tools
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.mcp_tell_change();
DROP TRIGGER IF EXISTS mcp_tell_change ON {schema}.mcp_tool_params;
CREATE TRIGGER mcp_tell_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {schema}.mcp_tool_params
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.mcp_tell_change();
DROP TRIGGER IF EXISTS mcp_tell_change ON {schema}.mcp_tool_users;
CREATE TRIGGER mcp_tell_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {schema}.mcp_tool_users
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.mcp_tell_change();
DROP TRIGGER IF EXISTS mcp_tell_change ON {schema}.mcp_user_grants;
CREATE TRIGGER mcp_tell_change AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {schema}.mcp_user_grants
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.mcp_tell_change();

GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
GRANT SELECT ON {schema}.mcp_list_tools, {schema}.mcp_list_toolParams, {schema}.mcp_list_toolUsers TO PUBLIC;

-- Samples: a table, a view, two functions and a procedure, all of them registered for everybody.

CREATE TABLE IF NOT EXISTS {schema}.sample_sales (
  id integer PRIMARY KEY,
  region varchar(20) NOT NULL,
  product varchar(40) NOT NULL,
  amount numeric(10, 2) NOT NULL,
  sold_on date NOT NULL
);
INSERT INTO {schema}.sample_sales (id, region, product, amount, sold_on) VALUES
  (1, 'north', 'lamp', 120.00, '2026-01-05'), (2, 'north', 'desk', 480.50, '2026-02-11'),
  (3, 'south', 'lamp', 95.25, '2026-02-12'), (4, 'south', 'chair', 210.00, '2026-03-01'),
  (5, 'west', 'desk', 455.00, '2026-03-15'), (6, 'west', 'lamp', 130.75, '2026-04-02')
ON CONFLICT DO NOTHING;
COMMENT ON COLUMN {schema}.sample_sales.amount IS 'The price that was paid, in euros';

CREATE OR REPLACE VIEW {schema}.sample_sales_by_region AS
SELECT region, COUNT(*) AS sales, SUM(amount) AS revenue FROM {schema}.sample_sales GROUP BY region;

CREATE OR REPLACE FUNCTION {schema}.sample_revenue(region text, since date DEFAULT NULL) RETURNS numeric
LANGUAGE sql STABLE AS $$
  SELECT COALESCE(SUM(s.amount), 0) FROM {schema}.sample_sales s
  WHERE s.region = sample_revenue.region AND (since IS NULL OR s.sold_on >= since)
$$;

CREATE OR REPLACE FUNCTION {schema}.sample_best_sales(how_many integer DEFAULT 3)
RETURNS TABLE (product text, amount numeric) LANGUAGE sql STABLE AS $$
  SELECT s.product::text, s.amount FROM {schema}.sample_sales s ORDER BY s.amount DESC LIMIT how_many
$$;

CREATE OR REPLACE PROCEDURE {schema}.sample_rename_product(old_name text, new_name text) LANGUAGE sql AS $$
  UPDATE {schema}.sample_sales SET product = new_name WHERE product = old_name
$$;

GRANT SELECT ON {schema}.sample_sales, {schema}.sample_sales_by_region TO PUBLIC;

INSERT INTO {schema}.mcp_tools (ToolName, DataBaseName, TableName, ToolType, docstring, Tags, Writes) VALUES
  ('sample_sales', trim('"' FROM '{schema}'), 'sample_sales', 'T', 'Sales of a small shop, one row each.', 'sample, sales', NULL),
  ('sample_sales_by_region', trim('"' FROM '{schema}'), 'sample_sales_by_region', 'V', 'How many sales each region has, and what they brought.', 'sample, sales', NULL),
  ('sample_revenue', trim('"' FROM '{schema}'), 'sample_revenue', 'F', 'What a region has sold for, since a day or ever.', 'sample, sales', NULL),
  ('sample_best_sales', trim('"' FROM '{schema}'), 'sample_best_sales', 'F', 'The largest sales.', 'sample, sales', NULL),
  ('sample_rename_product', trim('"' FROM '{schema}'), 'sample_rename_product', 'M', 'Gives a product another name in all its sales.', 'sample', 'Y')
ON CONFLICT DO NOTHING;
INSERT INTO {schema}.mcp_tool_params (ToolName, ParamName, ParamType, ParamPosition, ParamComment) VALUES
  ('sample_sales_by_region', 'region', 'CV', 1, 'north, south or west'),
  ('sample_sales_by_region', 'sales', 'bigint', 2, NULL),
  ('sample_sales_by_region', 'revenue', 'numeric', 3, 'In euros'),
  ('sample_revenue', 'region', 'CV', 1, 'north, south or west'),
  ('sample_revenue', 'since', 'DA', 2, 'The first day that counts'),
  ('sample_best_sales', 'how_many', 'I', 1, 'Rows at most; 3 by default'),
  ('sample_rename_product', 'old_name', 'CV', 1, NULL),
  ('sample_rename_product', 'new_name', 'CV', 2, NULL)
ON CONFLICT DO NOTHING;
INSERT INTO {schema}.mcp_tool_users (ToolName, DatabaseUser)
SELECT ToolName, 'PUBLIC' FROM {schema}.mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_revenue', 'sample_best_sales', 'sample_rename_product')
ON CONFLICT DO NOTHING;
INSERT INTO {schema}.mcp_user_grants (ToolName, UserName)
SELECT ToolName, '*' FROM {schema}.mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_revenue', 'sample_best_sales', 'sample_rename_product')
ON CONFLICT DO NOTHING;
