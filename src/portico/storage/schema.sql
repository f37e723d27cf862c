-- Generated from the migrations by `portico.storage.migrations.script`; a test compares the two.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE offerings (
	server TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	saved_at DOUBLE NOT NULL,
	offering BLOB NOT NULL,
	PRIMARY KEY (server)
);
CREATE TABLE failures (
	server TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	failed_at DOUBLE NOT NULL,
	reason TEXT NOT NULL,
	PRIMARY KEY (server)
);
CREATE TABLE vectors (
	model TEXT NOT NULL,
	hash TEXT NOT NULL,
	used_at DOUBLE NOT NULL,
	vector BLOB NOT NULL,
	PRIMARY KEY (model, hash)
);
CREATE INDEX vectors_by_use ON vectors (used_at);
CREATE TABLE mcp_servers (
	id INTEGER NOT NULL,
	server_name TEXT NOT NULL,
	display_name TEXT DEFAULT '' NOT NULL,
	docker_image TEXT DEFAULT '' NOT NULL,
	network_mode TEXT DEFAULT '' NOT NULL,
	is_active BOOLEAN DEFAULT TRUE NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (server_name)
);
CREATE TABLE mcp_categories (
	category_name TEXT NOT NULL,
	display_name TEXT DEFAULT '' NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	sort_order BIGINT DEFAULT '0' NOT NULL,
	is_edited BOOLEAN DEFAULT FALSE NOT NULL,
	PRIMARY KEY (category_name)
);
CREATE TABLE mcp_tools (
	id INTEGER NOT NULL,
	server_id INTEGER NOT NULL,
	tool_name TEXT NOT NULL,
	display_name TEXT DEFAULT '' NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	parameters_schema TEXT DEFAULT '{}' NOT NULL,
	primary_category TEXT DEFAULT 'misc' NOT NULL,
	tier TEXT DEFAULT 'cold' NOT NULL,
	tier_score DOUBLE DEFAULT '0' NOT NULL,
	avg_latency_ms DOUBLE DEFAULT '0' NOT NULL,
	success_count BIGINT DEFAULT '0' NOT NULL,
	total_invocations BIGINT DEFAULT '0' NOT NULL,
	seconds_total DOUBLE DEFAULT '0' NOT NULL,
	tokens_in BIGINT DEFAULT '0' NOT NULL,
	tokens_out BIGINT DEFAULT '0' NOT NULL,
	is_active BOOLEAN DEFAULT TRUE NOT NULL,
	is_scored BOOLEAN DEFAULT FALSE NOT NULL,
	mark TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (server_id, tool_name),
	FOREIGN KEY(server_id) REFERENCES mcp_servers (id)
);
CREATE INDEX mcp_tools_by_score ON mcp_tools (tier_score);
CREATE TABLE invocations (
	id INTEGER NOT NULL,
	at DOUBLE NOT NULL,
	day BIGINT DEFAULT '0' NOT NULL,
	server TEXT DEFAULT '' NOT NULL,
	tool TEXT,
	spelled TEXT DEFAULT '' NOT NULL,
	caller TEXT DEFAULT '' NOT NULL,
	surface TEXT DEFAULT '' NOT NULL,
	outcome TEXT DEFAULT '' NOT NULL,
	seconds DOUBLE DEFAULT '0' NOT NULL,
	code TEXT DEFAULT '' NOT NULL,
	tokens_in BIGINT DEFAULT '0' NOT NULL,
	tokens_out BIGINT DEFAULT '0' NOT NULL,
	parent TEXT DEFAULT '' NOT NULL,
	rank BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX invocations_by_time ON invocations (at);
CREATE TABLE lookups (
	id INTEGER NOT NULL,
	at DOUBLE NOT NULL,
	day BIGINT DEFAULT '0' NOT NULL,
	look TEXT DEFAULT '' NOT NULL,
	caller TEXT DEFAULT '' NOT NULL,
	surface TEXT DEFAULT '' NOT NULL,
	seconds DOUBLE DEFAULT '0' NOT NULL,
	text TEXT DEFAULT '' NOT NULL,
	shown BIGINT DEFAULT '0' NOT NULL,
	found BIGINT DEFAULT '0' NOT NULL,
	fits BOOLEAN DEFAULT TRUE NOT NULL,
	tokens BIGINT DEFAULT '0' NOT NULL,
	"instead" BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX lookups_by_time ON lookups (at);
CREATE TABLE writers (
	writer TEXT NOT NULL,
	stored BIGINT DEFAULT '0' NOT NULL,
	dropped BIGINT DEFAULT '0' NOT NULL,
	lost BIGINT DEFAULT '0' NOT NULL,
	is_gone BOOLEAN DEFAULT FALSE NOT NULL,
	seen_at DOUBLE DEFAULT '0' NOT NULL,
	PRIMARY KEY (writer)
);
CREATE TABLE usage_days (
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	day BIGINT NOT NULL,
	calls BIGINT DEFAULT '0' NOT NULL,
	done BIGINT DEFAULT '0' NOT NULL,
	seconds DOUBLE DEFAULT '0' NOT NULL,
	tokens_in BIGINT DEFAULT '0' NOT NULL,
	tokens_out BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (server, tool, day)
)
 WITHOUT ROWID

;
CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE TABLE usage_latencies (
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	bucket BIGINT NOT NULL,
	day BIGINT NOT NULL,
	calls BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (server, tool, bucket, day)
)
 WITHOUT ROWID

;
CREATE TABLE cache_counts (
	day BIGINT NOT NULL,
	name TEXT NOT NULL,
	hits BIGINT DEFAULT '0' NOT NULL,
	misses BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (day, name)
)
 WITHOUT ROWID

;
CREATE TABLE signals (
	topic TEXT NOT NULL,
	number BIGINT DEFAULT '0' NOT NULL,
	PRIMARY KEY (topic)
);
CREATE TABLE jobs (
	job TEXT NOT NULL,
	ran_at DOUBLE NOT NULL,
	PRIMARY KEY (job)
);
CREATE INDEX usage_latencies_by_day ON usage_latencies (day);
CREATE TABLE results (
	id TEXT NOT NULL,
	caller TEXT NOT NULL,
	tool TEXT NOT NULL,
	made_at DOUBLE NOT NULL,
	expires_at DOUBLE NOT NULL,
	size BIGINT NOT NULL,
	outline BLOB NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX results_by_expiry ON results (expires_at);
CREATE TABLE result_pieces (
	id TEXT NOT NULL,
	run BIGINT NOT NULL,
	number BIGINT NOT NULL,
	piece BLOB NOT NULL,
	PRIMARY KEY (id, run, number)
);
CREATE TABLE shapes (
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	shape TEXT NOT NULL,
	results BIGINT NOT NULL,
	PRIMARY KEY (server, tool)
);
CREATE TABLE learned_words (
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	word TEXT NOT NULL,
	caller TEXT NOT NULL,
	spelled TEXT NOT NULL,
	uses BIGINT NOT NULL,
	weight DOUBLE NOT NULL,
	PRIMARY KEY (server, tool, word, caller)
)
 WITHOUT ROWID

;
CREATE TABLE events (
	id INTEGER NOT NULL,
	at DOUBLE NOT NULL,
	gateway TEXT NOT NULL,
	server TEXT NOT NULL,
	kind TEXT NOT NULL,
	text TEXT NOT NULL,
	stderr TEXT NOT NULL,
	times BIGINT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX events_by_time ON events (at);
INSERT INTO alembic_version VALUES ('0007');
