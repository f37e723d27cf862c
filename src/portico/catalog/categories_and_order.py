"""The one category rule, the categories that Portico ships with, and tiers and categories as last stored."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from operator import itemgetter
from time import monotonic

from portico.domain.server import Packaging
from portico.domain.tool import LAST, Category, Tool, ToolId
from portico.domain.usage_and_tiers import Standing, Usage, standing_of

PREFIXES: Mapping[str, str] = {
    prefix: prefix.rstrip("_") for prefix in "base_ dba_ fs_ qlty_ sec_ tdvs_ plot_ rag_ sql_opt_ chat_ bar_".split()
}
"""Name prefixes that mean a category wherever local and database tools use them."""


_NONE: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRule:
    """Says on which shelf a tool stands."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    """From the config: a server, `server.tool` or a tool-name prefix ending in `*`, to a category."""
    servers: Mapping[str, str] = field(default_factory=dict)  # each server's default
    prefixes: Mapping[str, str] = field(default_factory=lambda: PREFIXES)

    @property
    def named(self) -> tuple[str, ...]:
        """The categories that the config names."""
        return (*self.explicit.values(), *self.servers.values())

    def category(self, server: str, name: str, source: str) -> str:
        """The one category of a tool."""
        return self.categories(server, (name,), source)[name]

    def categories(
        self,
        server: str,
        names: Iterable[str],
        source: str,
        title: str = "",
        tags: Mapping[str, Sequence[str]] = _NONE,
    ) -> dict[str, str]:
        """The one category of each tool of a server; `title` is what the server calls itself.

        `tags` are those of tools in a registry, of which the first is a category.
        """
        wide = {key[:-1]: category for key, category in self.explicit.items() if key.endswith("*")}
        prefixes = self.prefixes if source != "upstream" else {}
        spoken = shelf_of(server, title) if source == "upstream" else ""
        default = self.servers.get(server) or spoken or FALLBACK
        return {
            name: self.explicit.get(f"{server}.{name}")
            or _longest(name, wide)
            or self.explicit.get(server)
            or next((tag.lower() for tag in tags.get(name, ()) if is_category_name(tag)), "")
            or _longest(name, prefixes)
            or (_first_part(name) if source == "local" else "")
            or default
            for name in names
        }


def _first_part(name: str) -> str:
    """The first word of a name that has several: what local tools with names such as `sales_report` belong to."""
    first, mark, _ = name.partition("_")
    return first.lower() if mark and first.isalnum() else ""


def _longest(name: str, prefixes: Mapping[str, str]) -> str:
    if not prefixes:
        return ""
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(fitting, key=len)] if fitting else ""


FALLBACK = "misc"  # the shelf of tools that belong nowhere else

_ROWS = (
    ("code_analysis", "Code Analysis & Refactoring", "Symbols, static analysis, tests and language servers"),
    ("source_control", "Source Control", "Repositories, branches, commits, pull requests and code review"),
    ("web_automation", "Web Automation & Scraping", "Browsers, HTTP clients, crawling and scraping"),
    ("knowledge", "Search & Knowledge", "Web search, documentation, papers, wikis, notes and memory"),
    ("databases", "Databases", "SQL, document, key-value, graph and vector databases"),
    ("files", "Files & Documents", "File systems, cloud drives, office documents, PDF and conversion"),
    ("communication", "Communication", "Chat, e-mail, calls, calendars and social networks"),
    ("planning", "Planning & Business", "Issues, projects, tasks, customers, payments and shops"),
    ("infrastructure", "Infrastructure & Operations", "Clouds, clusters, containers, monitoring and security"),
    ("data_analysis", "Data Analysis & Media", "Calculation, charts, notebooks, maps, images and models"),
)

SHIPPED: Mapping[str, Category] = {
    **{
        name: Category(name=name, display_name=title, description=says, order=10 * number)
        for number, (name, title, says) in enumerate(_ROWS, start=1)
    },
    FALLBACK: Category(
        name=FALLBACK, display_name="Everything Else", description="Tools on no other shelf", order=LAST + 1
    ),
}
"""The categories that there are without any config, in their order."""

_SERVER_WORDS: Mapping[str, str] = {
    "code_analysis": """
        serena lsp pylint mypy ruff eslint sonar sonarqube sonarcloud codeql semgrep ast treesitter linter lint
        typescript python rust java kotlin jetbrains intellij pycharm xcode ide vscode debugger profiler refactor
        refactoring codebase codegraph jupyter-lsp pytest jest coverage codacy snyk-code language-server
        code-analysis static-analysis code-review-graph ghidra ida binary decompiler
    """,
    "source_control": """
        github gitlab git gitea forgejo bitbucket gerrit mercurial svn subversion perforce azure-devops repo repos
        repository repositories source-control version-control code-hosting code
    """,
    "web_automation": """
        playwright puppeteer selenium browser browserbase browserless chrome chromium firefox devtools fetch http https
        curl crawl crawler crawl4ai crawlee firecrawl scrape scraper scraping scrapy apify hyperbrowser stagehand
        webdriver cypress oxylabs brightdata bright-data web-unlocker web-automation web openapi swagger
    """,
    "knowledge": """
        search brave tavily exa serper serpapi duckduckgo google-search bing perplexity kagi searxng wikipedia wiki
        arxiv pubmed scholar semantic-scholar biorxiv crossref zotero context7 docs documentation deepwiki memory
        mem0 knowledge knowledge-graph rag notes obsidian logseq roam evernote apple-notes confluence notion
        aws-documentation microsoft-learn readwise
        hackernews hacker-news rss news sequential-thinking sequentialthinking thinking reasoning
        library libraries papers stackoverflow stack-overflow devdocs llms-txt graphiti
    """,
    "databases": """
        postgres postgresql pg mysql mariadb sqlite mssql sqlserver sql-server oracle redis valkey memcached mongo
        mongodb couchdb couchbase cassandra scylla dynamodb cosmos cosmosdb firestore firebase supabase neon planetscale
        turso libsql duckdb motherduck clickhouse snowflake bigquery redshift databricks teradata trino presto athena
        hive elasticsearch elastic opensearch solr meilisearch typesense algolia qdrant milvus chroma chromadb weaviate
        pinecone lancedb pgvector vector vectors neo4j memgraph arangodb falkordb surrealdb influxdb influx timescale
        questdb airtable nocodb baserow prisma dbhub sql database databases db warehouse lakehouse dremio starrocks
        tidb cockroach cockroachdb yugabyte hana db2
    """,
    "files": """
        filesystem file files folder folders fs disk storage drive gdrive google-drive onedrive sharepoint dropbox box
        nextcloud s3 minio blob pdf excel xlsx xls spreadsheet spreadsheets sheets google-sheets word docx powerpoint
        pptx ppt office document documents markitdown markdownify markdown pandoc docling convert converter conversion
        unstructured archive zip ftp sftp everything-search desktop-commander ocr epub latex docs-writer google-docs
    """,
    "communication": """
        slack discord teams telegram whatsapp signal matrix mattermost zulip rocketchat chat mail email e-mail gmail
        outlook imap smtp exchange mailgun mailchimp sendgrid resend postmark sms twilio vonage phone calls zoom
        meet webex calendar calendars caldav google-calendar ical cal calcom calendly contacts twitter x-twitter
        bluesky mastodon linkedin reddit facebook instagram tiktok youtube social messages messaging imessage
        lark feishu dingtalk wechat intercom ntfy pushover notification notifications workspace
    """,
    "planning": """
        jira atlassian tracker linear asana trello monday clickup todoist ticktick basecamp wrike smartsheet shortcut
        youtrack redmine openproject taskwarrior task tasks todo todos issue issues project projects planning
        plans crm hubspot salesforce pipedrive zoho attio zendesk freshdesk servicenow helpdesk support stripe paypal
        adyen plaid quickbooks xero billing invoice invoices invoicing payment payments accounting erp odoo sap
        shopify woocommerce magento shop store ecommerce e-commerce commerce amazon-seller hr people bamboohr workday
        recruiting greenhouse time tracking time-tracking toggl harvest clockify
    """,
    "infrastructure": """
        aws awslabs azure gcp google-cloud gcloud cloud cloudflare vercel netlify heroku render railway digitalocean
        linode hetzner ovh oci kubernetes k8s kubectl openshift helm rancher docker podman container containers
        cluster clusters terraform opentofu pulumi ansible chef puppet nomad consul vault argocd argo flux jenkins
        circleci travis buildkite teamcity actions ci cd cicd ssh shell terminal bash command commands powershell
        systemd linux proxmox vmware esxi grafana prometheus datadog newrelic new-relic sentry splunk loki tempo jaeger
        honeycomb dynatrace pagerduty opsgenie statuspage uptime uptimerobot monitoring observability logs logging
        nginx traefik caddy kong dns network networking tailscale wireguard wazuh crowdstrike okta auth0 keycloak
        security virustotal shodan nmap burp snyk trivy kafka rabbitmq nats pulsar sqs airflow dagster prefect n8n
        zapier temporal home-assistant homeassistant mqtt iot arduino lambda serverless iac
    """,
    "data_analysis": """
        calculator calculate calc math mathematics wolfram wolframalpha wolfram-alpha statistics stats pandas
        numpy jupyter notebook notebooks matlab sympy chart charts echarts plot plotting plotly matplotlib vega
        visualization visualisation mermaid diagram diagrams drawio excalidraw metabase tableau powerbi power-bi looker
        superset analytics google-analytics ga4 mixpanel amplitude posthog dbt data dataset datasets kaggle huggingface
        hugging-face ml mlflow wandb openai anthropic gemini ollama replicate comfyui stable-diffusion image images
        media video videos audio music spotify elevenlabs tts speech whisper ffmpeg blender figma canva photoshop
        maps map google-maps openstreetmap osm mapbox geocoding geo gis qgis weather openweather openmeteo finance
        stocks stock yahoo-finance yfinance alpaca coingecko crypto polygon fred worldbank census excel-analysis
        travel flights airbnb
    """,
}
"""Words that lead to a shelf; those with a hyphen are several words in a row."""

_GENERAL = frozenset(
    """
    code repo repos web search docs memory data cloud files file folder document documents store project projects
    support library libraries time python java rust typescript people calls actions command commands security network
    video videos image images media storage logs database databases db office knowledge documentation workspace notes
    shop map maps news task tasks issue issues chat social messages calendar travel vector vectors tracking
    """.split()
)
"""Words that say less than a product's name: `github-code-search` is about GitHub."""

_LEADS: Mapping[tuple[str, ...], str] = {
    tuple(word.split("-")): shelf for shelf, words in _SERVER_WORDS.items() for word in words.split()
}
_LONGEST = max(map(len, _LEADS))
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
NAME_READ = 200  # characters of a name that are read


def shelf_of(server: str, title: str = "") -> str:
    """The shelf that a server's name speaks of, or else its title; empty when they speak of none."""
    return _spoken(server) or _spoken(title)


def _spoken(name: str) -> str:
    """What the words of a name lead to: names of products before general words, the longest first, then the first."""
    words = [part for word in _WORD.findall(name[:NAME_READ]) for part in _parts(word)]
    found = [
        (len(run) == 1 and run[0] in _GENERAL, -len(run), start, _LEADS[run])
        for start in range(len(words))
        for length in range(1, _LONGEST + 1)
        if (run := tuple(words[start : start + length])) in _LEADS and len(run) == length
    ]
    return min(found)[3] if found else ""


def _parts(word: str) -> list[str]:
    """A word, or what its capitals divide it into when nothing is known of the whole."""
    whole = word.casefold()
    return [whole] if (whole,) in _LEADS else [part.casefold() for part in _PART.findall(word)] or [whole]


FEW_CALLED = 15
"""Tools in use up to which the first call of one more is noticed at once: as many as the hot list has places."""
NOTICED_SECONDS = 60.0
"""How long the first call of one more may go unnoticed after that, so that a busy gateway still keeps its answers."""

_UNUSED = standing_of(None, 0.0)


@dataclass(slots=True, kw_only=True)
class Standings:
    """What the tiers of disclosure are ordered by; readers take what is there and see no half of a change."""

    tiers: Mapping[ToolId, Standing] = field(default_factory=dict)  # how each tool stood at the last update
    categories: Mapping[str, Category] = field(default_factory=dict)
    """Those that were written down, beside the shipped ones and over them."""
    packaging: Mapping[str, Packaging] = field(default_factory=dict)  # how servers are packed, by name
    revision: int = 0
    """Grows whenever a part is replaced by another, so that what was made of the last one is not taken for this."""

    first_calls: FirstCalls = field(default_factory=lambda: FirstCalls())
    _known: tuple[Hashable, Mapping[str, Category], dict[str, Category]] = (None, {}, {})
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def replace_tiers(self, tiers: Mapping[ToolId, Standing]) -> None:
        """Let tools stand like this from now on."""
        is_new = tiers != self.tiers
        self.tiers = tiers
        self._tell(is_new)

    def replace_categories(self, categories: Mapping[str, Category]) -> None:
        """Show these categories from now on."""
        is_new = categories != self.categories
        self.categories = categories
        self._tell(is_new)

    def replace_packaging(self, packaging: Mapping[str, Packaging]) -> None:
        """Say this of servers from now on."""
        is_new = packaging != self.packaging
        self.packaging = packaging
        self._tell(is_new)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call this after every replacement that has changed something."""
        self._listeners.append(listener)

    def known(self, shipped: Mapping[str, Category], named: Iterable[str] = ()) -> Mapping[str, Category]:
        """Every category: the shipped ones, those that are only named, and over both those that were written down."""
        key = (self.revision, tuple(named))
        if self._known[0] != key or self._known[1] is not shipped:
            found = {**{name: unwritten(name) for name in key[1]}, **shipped, **self.categories}
            self._known = (key, shipped, found)
        return self._known[2]

    def _tell(self, is_new: bool) -> None:
        """An equal replacement is no news: what was made of the last one is still right."""
        if is_new:
            self.revision += 1
            for listener in self._listeners:
                listener()


@dataclass(slots=True, kw_only=True)
class FirstCalls:
    """How many tools were called so far, as kept answers know it: a tool's first call makes them anew, no later one."""

    clock: Callable[[], float] = monotonic
    _noticed: int = 0
    _at: float = -inf

    def noticed(self, usage: Mapping[ToolId, Usage]) -> int:
        """How many tools have a usage; the same for a while once there are many of them."""
        now = self.clock()
        if len(usage) <= FEW_CALLED or now - self._at >= NOTICED_SECONDS:
            self._noticed, self._at = len(usage), now
        return self._noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of tools at one moment: as they were written down, or by their usage if they were unused then."""

    tiers: Mapping[ToolId, Standing]
    usage: Mapping[ToolId, Usage]
    now: float

    def standing(self, id: ToolId) -> Standing:
        """How a tool stands."""
        known, usage = self.tiers.get(id, _UNUSED), self.usage.get(id)
        return standing_of(usage, self.now) if usage is not None and known == _UNUSED else known

    def score(self, id: ToolId) -> float:
        """How well a tool stands."""
        return self.standing(id).score

    def best_first(self, tools: Iterable[Tool]) -> list[Tool]:
        """Tools by score, the best first, then by name."""
        return sorted(tools, key=lambda tool: (-self.score(tool.id), tool.name, tool.id.server))

    def hottest(self, tools: Iterable[Tool], pins: Sequence[Tool], servers: Sequence[str], limit: int) -> list[Tool]:
        """Pins first, then by score, by the place of their servers, and by name; never more than the limit.

        A rank and no threshold: at first no tool has the calls that make a tool hot. While nothing was called,
        servers take turns, or the first one would fill the list.
        """
        pinned = list({tool.id: tool for tool in pins}.values())[:limit]
        taken = {tool.id for tool in pinned}
        places = {name: place for place, name in enumerate(servers)}
        is_fresh = not self.usage and all(standing == _UNUSED for standing in self.tiers.values())
        turns: Counter[str] = Counter()

        def place(tool: Tool) -> tuple[float, int, int, str, str]:
            turns[tool.id.server] += is_fresh
            return -self.score(tool.id), turns[tool.id.server], places.get(tool.id.server, len(places)), *tool.id

        others = ((place(tool), tool) for tool in tools if tool.id not in taken)
        return [*pinned, *(tool for _, tool in nsmallest(limit - len(pinned), others, key=itemgetter(0)))]


NAME_LENGTH = 64
NAMING = f"Write up to {NAME_LENGTH} letters, digits and underscores, such as code_analysis."
"""How to name a category, for people."""


_BROUGHT_WORDS = {
    "base": ("Base", "Tables, columns, previews and queries of a database"),
    "dba": ("Database Administration", "Sessions, space, users and versions of a database"),
    "qlty": ("Data Quality", "Missing values, distinct values and statistics of columns"),
    "sec": ("Security", "Users, roles and rights in a database"),
    "sql_opt": ("SQL Optimisation", "Expensive queries and how to make them cheaper"),
    "plot": ("Charts", "Line, pie, radar and polar charts of columns"),
    "rag": ("Retrieval", "Questions answered from documents by nearness of meaning"),
    "fs": ("Feature Store", "Features, entities and data sets of a feature store"),
    "tdvs": ("Vector Store", "Vector stores: create, update, ask"),
    "chat": ("Chat Completion", "Answers of a language model to rows of a table"),
    "bar": ("Backup and Restore", "Backup jobs, media and restores"),
}
"""What is known of categories that tools bring with them, by the prefixes of their names."""
BROUGHT = 5  # the place of those: before the categories that are there without any tools


def unwritten(name: str) -> Category:
    """A category of which nobody has written anything down."""
    if name not in _BROUGHT_WORDS:
        return Category(name=name)
    title, says = _BROUGHT_WORDS[name]
    return Category(name=name, display_name=title, description=says, order=BROUGHT)


def is_category_name(name: str) -> bool:
    """Whether a category can be called this: something that prints, on one line, and not too long."""
    return bool(name.strip()) and name == name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
