"""The requirements manifest: every promise by its id; a test that shows one carries `@pytest.mark.requirement(id)`.

`S0` to `S4` are the behaviours of the five designs that Portico unifies: 000 search and execute, 001 four tiers,
002 capabilities, 003 gateway with scripts, 004 tools in a database. `Sx-Pn` were only planned there, `Sx-En` say where
the design itself was wrong. `P-...` are promises of our own.
"""

from __future__ import annotations

from collections.abc import Iterator

SEEDS = {"S0": (84, 1, 10), "S1": (95, 0, 22), "S2": (59, 1, 10), "S3": (49, 0, 12), "S4": (54, 5, 16)}
"""Items, planned items and corrections of each design."""

GAPS = {
    "S0-1..S0-84": "the few that are not shown are about the layout and the tests of the original",
    "S0-P1..S0-P1": "prompts and resources are passed through, not yet disclosed progressively",
    "S1-84..S1-84": "latencies are measured by `make bench`; no test compares times",
    "S2-1..S2-59": "those that are not shown are about the process of the original; S2-58 cannot hold (S2-E5)",
    "S2-P1..S2-P1": "there is no command that clears the cache; a new edition makes a new one",
    "S2-E10..S2-E10": "where tests stand is a matter of layout",
    "S3-1..S3-49": "the `gateway` surface and scripts are not built yet",
    "S3-E1..S3-E12": "the `gateway` surface and scripts are not built yet",
    "S4-1..S4-54": "tools that live in a database are not built yet",
    "S4-P1..S4-P5": "tools that live in a database are not built yet",
    "S4-E1..S4-E16": "tools that live in a database are not built yet",
}
"""What is not shown by any test, and why; an id in such a range that a test claims is no gap."""

PROMISES = {
    "P-HOUSE-LAYERS": "Imports only go down the stairs, and a broken contract is noticed.",
    "P-HOUSE-SIZES": "Modules and functions stay below their walls.",
    "P-HOUSE-WORDS": "No name is an empty word.",
    "P-HOUSE-DOCSTRINGS": "Every module and public name says what it is.",
    "P-HOUSE-IMPORTS": "Imports stand at the top, but for a named few.",
    "P-HOUSE-DOCS": "Every command, option, setting, route, listed tool, error and exit code is documented.",
    "P-HOUSE-SELF": "What is committed speaks of the project alone.",
    "P-HOUSE-MANIFEST": "Every claimed id has a test, every marked test has an id, everything else is a named gap.",
    "P-IMPORT": "An unmodified client config with eight real servers is imported whole.",
    "P-EVERY-TOOL": "Every tool of eight real servers is found and called, on both surfaces, transports and eras.",
    "P-START-COLD": "A start with known servers spawns no process; a server starts on its first call.",
    "P-PASS-RESULTS": "Results are the same as without a gateway: text, images, structured content, resources.",
    "P-PASS-DEFINITIONS": "Definitions are listed as the server wrote them, but for the name.",
    "P-PASS-PROGRESS": "Progress reaches the client, over both transports and in both eras.",
    "P-PASS-ERRORS": "A tool's own error stays a result.",
    "P-PASS-CANCEL": "A cancelled call leaves the server free.",
    "P-PASS-PROMPTS": "Prompts and completion are passed through.",
    "P-PASS-RESOURCES": "Resources and templates are passed through.",
    "P-LIST-CHANGED": "A server's new tools are found and announced without a restart, in both eras.",
    "P-STABLE-SURFACE": "The discover surface lists the same bytes whatever the servers offer.",
    "P-BAD-DEFINITIONS": "Bad definitions are refused with visible reasons, and the others load.",
    "P-BAD-CONFIG": "A bad config is named by file and line, and its good servers run.",
    "P-NO-SHADOWING": "Names that collapse are told apart, and meta-tools are never shadowed.",
    "P-COMES-BACK": "A server that could not be asked at first is named, asked again, and found when it is back.",
    "P-BROKEN-IS-NOT-SLOW": "A server that failed a moment ago does not hold up every command.",
    "P-DEMO": "The demo shows the bill and the walk, and ends well however it is read.",
    "P-ERRORS": "An error says what failed, whether anything was sent, and the next call.",
    "P-LENIENT": "Malformed calls are repaired once.",
    "P-DOOR-ORIGIN": "A web page cannot reach the gateway by rebinding.",
    "P-DOOR-LOOPBACK": "The gateway listens on loopback only, and names a port that is in use.",
    "P-STDIO-CLEAN": "Nothing but protocol goes to stdout.",
    "P-LEAVES-CLEAN": "A stopped gateway leaves no process behind.",
    "P-PLAIN-CALLS": "A call that nothing can interrupt is answered with one body; refusals are the same.",
    "P-ASKS-BACK": "A tool may ask its client something, in both eras.",
    "P-LOGS": "Log messages reach the client whose call they belong to, and no other.",
    "P-TOKENS-DISCOVER": "The discover surface costs at most 700 tokens.",
    "P-TOKENS-SEARCH": "A default search answer costs at most 800 tokens.",
    "P-NAMES-COLLISIONS": "Names that collapse get `_2`, `_3` in sorted order and never take a real name.",
    "P-NAMES-INJECTIVE": "No two tools ever share a spelling.",
    "P-NAMES-STABLE": "Spellings do not depend on the order of arrival.",
    "P-NAMES-LISTED": "Listed names fit MCP's rule, and are never a meta-tool's name or another tool's handle.",
    "P-RESOLVE-SPELLINGS": "Every spelling of the design means the same tool.",
    "P-RESOLVE-AMBIGUOUS": "An ambiguous name lists its readings, at most ten, and picks none.",
    "P-RESOLVE-NEVER-ANOTHER": "A spelling never leads to another tool.",
    "P-HIDDEN-LOOKS-MISSING": "A hidden tool cannot be told from a missing one.",
    "P-NO-SLOW-PATTERNS": "No pattern, template or recursive schema holds the gateway.",
    "P-INTAKE-REFUSES": "A bad definition is refused with a reason, and the others load.",
    "P-INTAKE-RECURSIVE": "Recursive types pass.",
    "P-INTAKE-CUTS": "Long descriptions are cut with a marker.",
    "P-INTAKE-MENDS": "What a strict client would refuse is mended or left out, with a note.",
    "P-INTAKE-BOMBS": "A schema bomb is judged, not suffered.",
    "P-INTAKE-NEVER-RAISES": "Any JSON is taken or refused, without another exception.",
    "P-EDITION-ONCE": "One edition per change, none without one.",
    "P-EDITION-AGREES": "Index and edition always agree.",
    "P-SIGNATURE-COMPLETE": "No required parameter is left out unmarked, and a signature is one line.",
    "P-SIGNATURE-SHORT": "A signature averages under 60 tokens, those of real tools under 40, and few are shortened.",
    "P-LEVELS": "A tool can be shown at each of four levels, and each shows more than the one below.",
    "P-TOKENS-ESTIMATE": "The estimate is near the exact count.",
    "P-BUDGET-LAST-FIRST": "The last card gives way first.",
    "P-BUDGET-NAMES": "Names are shown when they fit, the rest is counted.",
    "P-BUDGET-NEVER-OVER": "No answer exceeds its budget.",
    "P-SEARCH-ANY-TEXT": "Any text may be searched.",
    "P-SEARCH-EXACT-FIRST": "An exact name comes first.",
    "P-SEARCH-FORGIVES": "Misspelled words, synonyms and other forms of a word find what was meant.",
    "P-SEARCH-NEEDS": "A query that asks for several things finds a tool for each; a single thing stays whole.",
    "P-SEARCH-MEANING": "Words that mean nearly the same are near to each other.",
    "P-SEARCH-COPIES": "The same tool on several servers does not crowd out others.",
    "P-SEARCH-BOMBS": "A monstrous definition buys no place in the index.",
    "P-NOTHING-FITS": "Where no tool fits, the answer says so, names the nearest, and shows the map instead of tools.",
    "P-FILTERS": "Filters narrow a search; a value that no tool has is answered with those that exist.",
    "P-TAGS": "Tags are taken from wherever a definition has them, as text and within bounds.",
    "P-USAGE": "Usage counts what says something about a tool, and no calls count as nothing known.",
    "P-USAGE-GENTLE": "Usage orders what is practically equal on a page, and never moves a tool across pages.",
    "P-EXPLAIN": "The parts of a score are shown, and add up to it.",
    "P-PAGES-STABLE": "A cursor leads on in its own list; in any other it is named and starts at the beginning.",
    "P-PAGES-COMPLETE": "The pages together are all hits, without repeats.",
    "P-ERROR-FORMAT": "Errors read exactly as the design says.",
    "P-REPAIR": "A value is repaired only when it can be meant one way.",
    "P-LENIENT-HONEST": "Tools that really have such parameters are left alone.",
    "P-JOURNAL-ONCE": "Every call is recorded exactly once.",
    "P-JOURNAL-DOORS": "Every look and every call is in the journal, and a call knows the place at which it was found.",
    "P-JOURNAL-DURABLE": "With a durable journal, what was answered is stored, even if the process is killed.",
    "P-JOURNAL-LOSSES": "What is not in the journal is counted, exactly.",
    "P-JOURNAL-AWAY": "A store that is away costs no call, and gets what it missed.",
    "P-CALL-WAITS-FOR-START": "A call to a starting server waits for it.",
    "P-DISCOVER-LIST": "Discover lists its meta-tools and the pins.",
    "P-INSTRUCTIONS": "Instructions fit 512 characters and name servers.",
    "P-LIBRARY": "The design's library example works.",
    "P-LIBRARY-FUNCTIONS": "A function is defined by its signature and docstring.",
    "P-LIBRARY-ERRORS": "A function's error is the tool's result.",
    "P-LIBRARY-TIMEOUT": "A function that hangs is given up.",
    "P-LIBRARY-IMPORTS": "The library loads no MCP and no web.",
    "P-STORE-CONTRACT": "Every store keeps its port's contract.",
    "P-PROVIDER-CONTRACT": "Every provider keeps its port's contract.",
    "P-POLICY-CONTRACT": "Every policy keeps its port's contract.",
    "P-INDEX-CONTRACT": "Every index keeps its port's contract.",
    "P-JOURNAL-CONTRACT": "Every journal keeps its port's contract.",
    "P-COUNTER-CONTRACT": "Every token counter keeps its port's contract.",
    "P-STORE-CORRUPT": "Damage is moved aside, ignored, or our own error.",
    "P-STORE-ADVICE": "An unwritable home is explained.",
    "P-STORE-MIGRATES": "A store is brought up to date with what is in it, by any number of processes at once.",
    "P-STORE-LIGHT": "A SQLite store loads no library for databases.",
    "P-STORE-SECRET": "No message shows the password of a store.",
    "P-REPLICAS": "Processes that share a database share the daily work, and take over each other's changes.",
    "P-REST-ERRORS": "Over REST every error has one shape, and says what to ask instead.",
    "P-REST-OPENAPI": "REST does what its OpenAPI document says.",
    "P-RESOURCES-CATALOG": "The four tiers are resources on every surface, in both eras.",
    "P-METRICS": "Figures never fall, and their names stay few.",
    "P-STORE-SHARED": "Processes may open one store at once.",
    "P-SEMANTIC": "An embedder finds what no word tells, without holding up a search, and says its part of a score.",
    "P-EMBEDDER-CONTRACT": "Every embedder keeps its port's contract.",
    "P-EMBEDDER-AWAY": "An embedder that is away, slow or wrong costs nobody a search, and is used again later.",
    "P-EMBEDDER-ONCE": "Nothing is embedded twice, not even across restarts.",
    "P-EMBEDDER-SECRET": "No log, error or state shows the key of an embedder.",
    "P-EMBEDDER-CONFIG": "An embedder that cannot be used is named by file and line, and search goes on.",
    "P-STORE-OPTIONAL": "A broken store costs memory only.",
    "P-CLI-JSON": "`--json` prints JSON only.",
    "P-CLI-ARGUMENTS": "Arguments may be pairs, JSON, `@file` or `-`.",
    "P-CLI-EXIT-CODES": "Errors end with their documented code.",
    "P-CLI-NO-TRACEBACK": "No command line or config ends in a traceback.",
    "P-CLI-NO-CONTROL": "No control character from outside reaches a terminal.",
}


def acceptance() -> Iterator[str]:
    """Every id of the five designs."""
    for seed, (items, planned, corrections) in SEEDS.items():
        yield from (f"{seed}-{n}" for n in range(1, items + 1))
        yield from (f"{seed}-P{n}" for n in range(1, planned + 1))
        yield from (f"{seed}-E{n}" for n in range(1, corrections + 1))


def expand(ids: str) -> list[str]:
    """The ids of a range such as `S1-E1..S1-E22`."""
    first, last = (id.rsplit("-", 1) for id in ids.split(".."))
    letters = first[1].rstrip("0123456789")
    numbers = range(int(first[1].removeprefix(letters)), int(last[1].removeprefix(letters)) + 1)
    return [f"{first[0]}-{letters}{number}" for number in numbers]
