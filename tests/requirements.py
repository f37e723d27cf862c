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
    "S0-1..S0-84": "the `search` surface, Python tools and packaged tools are not built yet",
    "S0-P1..S0-P1": "prompts and resources are passed through, not yet disclosed progressively",
    "S0-E1..S0-E10": "the `search` surface and its ranker are not built yet",
    "S1-1..S1-95": "usage, tiers, budgets over REST and the journal's store are not built yet",
    "S1-E1..S1-E22": "usage, tiers, budgets over REST and the journal's store are not built yet",
    "S2-1..S2-59": "the `capabilities` surface is not built yet",
    "S2-P1..S2-P1": "the `capabilities` surface is not built yet",
    "S2-E1..S2-E10": "the `capabilities` surface is not built yet",
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
    "P-ERRORS": "An error says what failed, whether anything was sent, and the next call.",
    "P-LENIENT": "Malformed calls are repaired once.",
    "P-DOOR-ORIGIN": "A web page cannot reach the gateway by rebinding.",
    "P-DOOR-LOOPBACK": "The gateway listens on loopback only, and names a port that is in use.",
    "P-STDIO-CLEAN": "Nothing but protocol goes to stdout.",
    "P-LEAVES-CLEAN": "A stopped gateway leaves no process behind.",
    "P-TOKENS-DISCOVER": "The discover surface costs at most 700 tokens.",
    "P-TOKENS-SEARCH": "A default search answer costs at most 800 tokens.",
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
