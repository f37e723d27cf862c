-- A registry of tools in a SQLite file. It can be run again: what is there stays as it is.
--
-- To register a table or view, insert one row into mcp_tools, one for each column into mcp_tool_params, and one into
-- mcp_user_grants for each caller who may see it, or *. A SQLite file knows no users of its own, so every tool is shown to
-- every gateway that reads it.

CREATE TABLE IF NOT EXISTS {schema}.mcp_tools (
  ToolName TEXT PRIMARY KEY NOT NULL,
  DataBaseName TEXT NOT NULL DEFAULT 'main',
  TableName TEXT NOT NULL,
  ToolType TEXT NOT NULL CHECK (ToolType IN ('F', 'T', 'V')),
  docstring TEXT,
  Tags TEXT
);

CREATE TABLE IF NOT EXISTS {schema}.mcp_tool_params (
  ToolName TEXT NOT NULL REFERENCES mcp_tools ON UPDATE CASCADE ON DELETE CASCADE,
  ParamName TEXT NOT NULL,
  -- A code such as CV, I or DA, or a name such as INTEGER or NUMERIC(10,2).
  ParamType TEXT NOT NULL,
  ParamLength TEXT,
  ParamPosition INTEGER CHECK (ParamPosition > 0),
  -- Nothing said means that a column need not be filtered, and that a function needs its parameter.
  ParamRequired TEXT CHECK (ParamRequired IN ('Y', 'N')),
  ParamComment TEXT,
  PRIMARY KEY (ToolName, ParamName)
);

-- Which people and agents may see a tool; * means all of them.
CREATE TABLE IF NOT EXISTS {schema}.mcp_user_grants (
  ToolName TEXT NOT NULL REFERENCES mcp_tools ON UPDATE CASCADE ON DELETE CASCADE,
  UserName TEXT NOT NULL,
  PRIMARY KEY (ToolName, UserName)
);

DROP VIEW IF EXISTS {schema}.mcp_list_tools;
CREATE VIEW {schema}.mcp_list_tools AS
SELECT ToolName, DataBaseName, TableName, ToolType, docstring, Tags FROM mcp_tools;

DROP VIEW IF EXISTS {schema}.mcp_list_toolParams;
CREATE VIEW {schema}.mcp_list_toolParams AS
SELECT p.ToolName, p.ParamName, p.ParamType, p.ParamLength, p.ParamPosition,
  COALESCE(p.ParamRequired, CASE WHEN t.ToolType = 'F' THEN 'Y' ELSE 'N' END) AS ParamRequired,
  p.ParamComment
FROM mcp_tool_params p JOIN mcp_tools t ON t.ToolName = p.ToolName;

DROP VIEW IF EXISTS {schema}.mcp_list_toolUsers;
CREATE VIEW {schema}.mcp_list_toolUsers AS SELECT ToolName, UserName FROM mcp_user_grants;

-- Samples: a table, a view, and a function that SQLite brings, all of them registered for everybody.

CREATE TABLE IF NOT EXISTS {schema}.sample_sales (
  id INTEGER PRIMARY KEY,
  region TEXT NOT NULL,
  product TEXT NOT NULL,
  amount NUMERIC(10, 2) NOT NULL,
  sold_on DATE NOT NULL
);
INSERT INTO {schema}.sample_sales (id, region, product, amount, sold_on) VALUES
  (1, 'north', 'lamp', 120.00, '2026-01-05'), (2, 'north', 'desk', 480.50, '2026-02-11'),
  (3, 'south', 'lamp', 95.25, '2026-02-12'), (4, 'south', 'chair', 210.00, '2026-03-01'),
  (5, 'west', 'desk', 455.00, '2026-03-15'), (6, 'west', 'lamp', 130.75, '2026-04-02')
ON CONFLICT DO NOTHING;

DROP VIEW IF EXISTS {schema}.sample_sales_by_region;
CREATE VIEW {schema}.sample_sales_by_region AS
SELECT region, COUNT(*) AS sales, SUM(amount) AS revenue FROM sample_sales GROUP BY region;

INSERT INTO {schema}.mcp_tools (ToolName, DataBaseName, TableName, ToolType, docstring, Tags) VALUES
  ('sample_sales', trim('{schema}', '"'), 'sample_sales', 'T', 'Sales of a small shop, one row each.', 'sample, sales'),
  ('sample_sales_by_region', trim('{schema}', '"'), 'sample_sales_by_region', 'V', 'How many sales each region has, and what they brought.', 'sample, sales'),
  ('sample_format_date', trim('{schema}', '"'), 'strftime', 'F', 'Writes a date in another form.', 'sample')
ON CONFLICT DO NOTHING;
INSERT INTO {schema}.mcp_tool_params (ToolName, ParamName, ParamType, ParamLength, ParamPosition, ParamComment) VALUES
  ('sample_sales', 'id', 'INTEGER', NULL, 1, NULL),
  ('sample_sales', 'region', 'CV', '20', 2, 'north, south or west'),
  ('sample_sales', 'product', 'CV', '40', 3, NULL),
  ('sample_sales', 'amount', 'NUMERIC(10, 2)', NULL, 4, 'The price that was paid, in euros'),
  ('sample_sales', 'sold_on', 'DA', NULL, 5, NULL),
  ('sample_sales_by_region', 'region', 'CV', '20', 1, 'north, south or west'),
  ('sample_sales_by_region', 'sales', 'I', NULL, 2, NULL),
  ('sample_sales_by_region', 'revenue', 'NUMERIC', NULL, 3, 'In euros'),
  ('sample_format_date', 'form', 'CV', '100', 1, 'Such as %d.%m.%Y'),
  ('sample_format_date', 'moment', 'CV', '40', 2, 'Such as 2026-05-31')
ON CONFLICT DO NOTHING;
INSERT INTO {schema}.mcp_user_grants (ToolName, UserName)
SELECT ToolName, '*' FROM mcp_tools
WHERE ToolName IN ('sample_sales', 'sample_sales_by_region', 'sample_format_date')
ON CONFLICT DO NOTHING;
