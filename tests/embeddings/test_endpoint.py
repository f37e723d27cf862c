"""An endpoint over real HTTP: what it is asked, and every way in which it can fail."""

from __future__ import annotations

import socket

import pytest

from portico.errors import EmbedderAway
from portico.search.embeddings.endpoint import Endpoint

from . import embedding_server as serving
from .embedding_server import EmbeddingServer, says, vector

KEY = "sk-very-secret-12345"


def asked(server: EmbeddingServer, *texts: str, seconds: float = 5.0, key: str = KEY) -> list[list[float]]:
    return [list(found) for found in Endpoint(server.url, "m", key=key, seconds=seconds).embed(texts)]


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
def test_vectors_come_in_the_order_of_the_texts(server: EmbeddingServer) -> None:
    assert asked(server, "one", "données ✓", "") == [vector("one"), vector("données ✓"), vector("")]
    assert server.requests == [{"model": "m", "input": ["one", "données ✓", ""], "path": "/v1/embeddings"}]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_an_endpoint_without_a_key_is_sent_none(server: EmbeddingServer) -> None:
    asked(server, "one", key="")
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/embeddings", "/v1/embeddings/"])
def test_the_address_may_be_written_with_or_without_its_end(server: EmbeddingServer, path: str) -> None:
    url = server.url.removesuffix("/v1") + path
    Endpoint(f"{url}?version=2", "m").embed(["x"])
    assert server.requests[0]["path"] == "/v1/embeddings?version=2"


def test_texts_are_sent_in_batches_over_one_connection(server: EmbeddingServer) -> None:
    texts = [str(n) for n in range(150)]
    assert asked(server, *texts) == [vector(text) for text in texts]
    assert [len(request["input"]) for request in server.requests] == [64, 64, 22]
    assert server.connections == 1


def test_a_connection_that_was_hung_up_meanwhile_is_replaced(server: EmbeddingServer) -> None:
    endpoint = Endpoint(server.url, "m", seconds=5)
    endpoint.embed(["one"])
    server.close()
    server.open()
    assert endpoint.embed(["two"]) == [vector("two")]


def test_a_chunked_answer_is_read_and_the_connection_used_again(server: EmbeddingServer) -> None:
    server.behaviour = serving.chunked
    endpoint = Endpoint(server.url, "m", seconds=5)
    assert [endpoint.embed([text])[0] for text in "abc"] == [vector(text) for text in "abc"]
    assert server.connections == 1


HUGE_NUMBER = '{"data": [{"index": 0, "embedding": [1e999, 1]}]}'
FAILURES = {
    "401": (says(401, f'{{"error": {{"message": "Incorrect API key: {KEY}"}}}}'), "refused the key (HTTP 401)"),
    "403": (says(403, KEY), "refused the key (HTTP 403)"),
    "404": (says(404, '{"error": "model not found,\\n try pulling it"}'), "HTTP 404: model not found, try pulling it"),
    "429": (says(429, f'{{"error": {{"message": "slow down, {KEY}"}}}}'), "HTTP 429: slow down, ***"),
    "500": (says(500, "<html>oops</html>"), "it answered HTTP 500"),
    "a redirect": (says(302, "", Location="http://127.0.0.1:1/elsewhere"), "HTTP 302"),
    "no JSON": (says(200, "hello"), "OpenAI shape"),
    "no answer at all": (says(200, ""), "OpenAI shape"),
    "another shape": (says(200, '{"embeddings": [[1, 2]]}'), "OpenAI shape"),
    "a list": (says(200, "[1, 2]"), "OpenAI shape"),
    "rows that are none": (says(200, '{"data": [1]}'), "OpenAI shape"),
    "an index that is none": (says(200, '{"data": [{"index": [], "embedding": [1]}]}'), "OpenAI shape"),
    "no rows": (says(200, '{"data": []}'), "OpenAI shape"),
    "too many rows": (says(200, '{"data": [{"embedding": [1]}, {"embedding": [1]}]}'), "2 vectors for 1 text"),
    "no numbers": (says(200, '{"data": [{"index": 0, "embedding": ["1", "2"]}]}'), "no vector"),
    "base64": (says(200, '{"data": [{"index": 0, "embedding": "AACAPw=="}]}'), "no vector"),
    "null": (says(200, '{"data": [{"index": 0, "embedding": [null]}]}'), "no vector"),
    "switches": (says(200, '{"data": [{"index": 0, "embedding": [true]}]}'), "no vector"),
    "NaN": (says(200, '{"data": [{"index": 0, "embedding": [NaN, 1]}]}'), "OpenAI shape"),
    "infinity": (says(200, HUGE_NUMBER), "OpenAI shape"),
    "an empty vector": (says(200, '{"data": [{"index": 0, "embedding": []}]}'), "vectors of 0 numbers"),
    "a vector without end": (serving.sized(20_000), "vectors of 20000 numbers"),
    "100 MB": (serving.floods, "larger than 32 MiB"),
    "100 MB announced": (serving.announces_a_flood, "larger than 32 MiB"),
    "half an answer": (serving.hangs_up, "not HTTP (IncompleteRead)"),
    "something else than HTTP": (lambda handler, texts: handler.wfile.write(b"SSH-2.0\r\n\r\n"), "not HTTP"),
}


@pytest.mark.requirement("P-EMBEDDER-AWAY", "P-EMBEDDER-SECRET")
@pytest.mark.parametrize("failure", FAILURES)
def test_every_failure_is_said_in_our_words_and_without_the_key(server: EmbeddingServer, failure: str) -> None:
    server.behaviour, words = FAILURES[failure]
    with pytest.raises(EmbedderAway) as caught:
        asked(server, "x")
    assert words in str(caught.value)
    shown = repr(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    assert KEY not in shown
    assert str(caught.value).isprintable()


@pytest.mark.requirement("P-EMBEDDER-AWAY")
@pytest.mark.parametrize("behaviour", [serving.hangs, serving.drips])
def test_an_endpoint_that_takes_too_long_is_given_up(server: EmbeddingServer, behaviour: object) -> None:
    server.behaviour = behaviour  # type: ignore[assignment]
    with pytest.raises(EmbedderAway, match=r"no answer within 0\.2 s"):
        asked(server, "x", seconds=0.2)


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_nobody_who_listens_is_said_so(server: EmbeddingServer) -> None:
    server.close()
    with pytest.raises(EmbedderAway, match="cannot be reached: connection refused"):
        asked(server, "x")


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_a_name_that_nobody_knows_is_said_so() -> None:
    with pytest.raises(EmbedderAway, match="its name is not known"):
        Endpoint("http://nobody.invalid/v1", "m").embed(["x"])


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_vectors_of_different_lengths_are_refused(server: EmbeddingServer) -> None:
    server.behaviour = lambda handler, texts: serving.sized(8 if len(texts) == 64 else 5)(handler, texts)
    with pytest.raises(EmbedderAway, match="vectors of 5 and 8 numbers"):
        asked(server, *map(str, range(70)))


@pytest.mark.requirement("P-EMBEDDER-SECRET")
def test_a_key_that_is_no_header_is_not_shown(server: EmbeddingServer) -> None:
    with pytest.raises(EmbedderAway) as caught:
        asked(server, "x", key=f"{KEY}\r\nX-Evil: 1")
    assert KEY not in str(caught.value)
    assert server.requests == []


@pytest.mark.requirement("P-EMBEDDER-SECRET")
def test_the_name_shows_the_model_and_the_address_and_nothing_private() -> None:
    endpoint = Endpoint("https://ana:hunter2@example.com/v1?token=hunter3", "small", key=KEY)
    assert endpoint.name == "small at https://example.com/v1/embeddings"
    assert KEY not in repr(endpoint)


def test_a_proxy_of_the_environment_is_used(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("no_proxy", "")
    assert Endpoint("http://models.example:81/v1", "m", seconds=5).embed(["x"]) == [vector("x")]
    assert server.requests[0]["path"] == "http://models.example:81/v1/embeddings"
    assert server.headers[0]["Host"] == "models.example:81"


def test_an_endpoint_that_does_not_speak_tls_is_said_so(server: EmbeddingServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        url = f"https://127.0.0.1:{plain.getsockname()[1]}/v1"
        with pytest.raises(EmbedderAway, match=r"no answer within 0\.2 s"):
            Endpoint(url, "m", seconds=0.2).embed(["x"])
    with pytest.raises(EmbedderAway, match="cannot be reached"):
        Endpoint(server.url.replace("http:", "https:"), "m", seconds=5).embed(["x"])
