"""Secrets of the config are masked in every word that comes from outside, in whatever form they stand there."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote

import pytest

from portico.domain.server import ServerSpec
from portico.text.redaction import Redactor, certain_secrets_of, secrets_of

SECRET = 'c4n4ry/With+Signs=and"quotes'
PLAIN = "canary-9f3a7b"


def spec(**fields: object) -> ServerSpec:
    return ServerSpec(name="s", transport="stdio", **fields)  # type: ignore[arg-type]


SPECS = {
    "an environment variable": spec(env={"TOKEN": PLAIN}),
    "a header": spec(headers={"X-Key": PLAIN}),
    "a bearer token": spec(headers={"Authorization": f"Bearer {PLAIN}"}),
    "a lower-case scheme": spec(headers={"authorization": f"bearer  {PLAIN}"}),
    "another scheme": spec(headers={"Authorization": f"Token {PLAIN}"}),
    "a basic password": spec(headers={"Authorization": "Basic " + b64encode(f"user:{PLAIN}".encode()).decode()}),
    "a cookie": spec(headers={"Cookie": f"theme=dark; session={PLAIN}"}),
    "a password in an address": spec(url=f"https://user:{PLAIN}@host/mcp"),
    "a user in an address": spec(url=f"https://{PLAIN}@host/mcp"),
    "a query": spec(url=f"https://host/mcp?key={PLAIN}"),
    "an argument after its flag": spec(args=("--token", PLAIN)),
    "an argument with its flag": spec(args=(f"--api-key={PLAIN}",)),
    "a variable for a container": spec(args=("run", "-e", f"GITHUB_TOKEN={PLAIN}", "image")),
    "a header among arguments": spec(args=("--header", f"Authorization: Bearer {PLAIN}")),
    "an address among arguments": spec(args=(f"postgresql://app:{PLAIN}@db/main",)),
    "an address in a variable": spec(env={"DATABASE_URL": f"postgresql://app:{PLAIN}@db/main"}),
    "a variable that the config expanded": spec(args=("x",), secrets={"ANY": PLAIN}),
}


@pytest.mark.requirement("P-NO-SECRET-LEAKS")
@pytest.mark.parametrize("where", SPECS)
def test_a_secret_is_masked_wherever_the_config_has_it(where: str) -> None:
    text = Redactor(secrets_of(SPECS[where])).text(
        f"401 for {PLAIN}: bad token '{PLAIN}', see https://x/?t={PLAIN}&y=1"
    )
    assert PLAIN not in text
    assert text.startswith("401 for [")


@pytest.mark.requirement("P-NO-SECRET-LEAKS")
@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        b64encode(SECRET.encode()).decode(),
        SECRET.replace('"', '\\"'),
        f"Bearer {SECRET}",
        f"  {SECRET}\n",
    ],
)
def test_a_secret_is_masked_in_its_usual_forms(form: str) -> None:
    shown = Redactor([("KEY", SECRET)]).text(f"before {form} after")
    assert "[KEY]" in shown
    assert "c4n4ry" not in shown
    assert shown.startswith("before")
    assert shown.endswith("after")


def test_a_token_that_looks_like_one_is_masked_among_arguments() -> None:
    token = "ghp_" + "a1B2" * 9
    assert token not in Redactor(secrets_of(spec(args=("serve", token)))).text(f"bad: {token}")


def test_short_words_stay_readable() -> None:
    assert Redactor([("MODE", "debug")]).text("the debug mode") == "the debug mode"


def test_a_longer_secret_is_masked_before_a_shorter_one_inside_of_it() -> None:
    shown = Redactor([("A", "secret"), ("B", "secret-and-more")]).text("x secret-and-more y secret z")
    assert shown == "x [B] y [A] z"


def test_data_is_masked_in_names_and_values_at_every_depth() -> None:
    shown = Redactor([("K", PLAIN)]).data({"a": [{PLAIN: f"x{PLAIN}"}], "n": 1, "t": True, "z": None})
    assert shown == {"a": [{"[K]": "x[K]"}], "n": 1, "t": True, "z": None}


def test_large_and_deep_data_is_cut_instead_of_searched_for_ever() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert str(Redactor([("K", PLAIN)]).data(deep)).startswith("[[")
    assert len(Redactor([("K", PLAIN)]).data([[PLAIN]] * 100_000)) == 100_000


def test_ordinary_values_of_variables_are_not_certain() -> None:
    both = spec(env={"MODE": "production", "API_KEY": PLAIN})
    assert dict(certain_secrets_of(both)) == {"API_KEY": PLAIN}
