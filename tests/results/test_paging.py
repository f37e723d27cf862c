"""Results that were shortened are read on: page by page, by a word or a pattern, by a path."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from anyio import create_task_group, fail_after, lowlevel

from portico.domain.call import Caller
from portico.domain.search_answers import Disclosure
from portico.errors import InvalidArguments, UnknownResult
from portico.rendering.budget import TokenEstimate
from portico.results.preview import read_outline
from portico.results.read_kept_result import PATTERN_LENGTH, ReadRequest, ResultReader
from portico.results.truncate import Truncator
from portico.testing import make_test_app

CALLER = Caller(name="anna", result_tokens=600)
USERS: Any = {"users": [{"id": n, "mail": f"user{n}@Example.com"} for n in range(2_000)], "note": "n" * 30}


def kept(*texts: str) -> tuple[ResultReader, str]:
    truncator = Truncator(counter=TokenEstimate())
    return ResultReader(truncator), truncator.results.keep(
        CALLER, "a.b", tuple(read_outline(text, 100).part for text in texts), 0
    )


async def read(reader: ResultReader, id: str, **asked: str) -> Disclosure:
    answer = await reader.read(CALLER, ReadRequest(id=id, **asked))
    assert answer.tokens <= 600
    return answer


def next_cursor(answer: Disclosure) -> str:
    found = re.search(r"read_result\((\{.*\})\)", answer.next)
    return str(json.loads(found[1])["cursor"]) if found else ""


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
async def test_the_pages_of_a_text_together_are_the_text(end: str) -> None:
    text = "\n".join(f"{n} " + "word " * (n % 50) for n in range(1_500)) + end
    reader, id = kept(text)
    found, cursor = "", "0"
    while cursor:
        page = await read(reader, id, cursor=cursor)
        cursor = next_cursor(page)
        found += page.text + "\n"
    assert found.split() == text.split()


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_line_without_an_end_can_be_read_to_the_end() -> None:
    text = "".join(f"{n}," for n in range(30_000))
    reader, id = kept(text)
    found, cursor = "", "0"
    while cursor:
        page = await read(reader, id, cursor=cursor)
        cursor, found = next_cursor(page), found + page.text
    assert found == text


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_word_is_found_in_any_case_with_the_number_of_its_item() -> None:
    reader, id = kept(json.dumps(USERS, indent=2))
    answer = await read(reader, id, grep="USER1234@example.COM")
    assert answer.text == '1234: {"id":1234,"mail":"user1234@Example.com"}'
    assert answer.next == "1 with 'USER1234@example.COM' in them; that is all"


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("grep", ["müller", "MÜLLER", "Müller", 'say "12345"', "a\\b", "漢字"])
async def test_a_word_is_found_however_json_spells_it(grep: str, ascii: bool) -> None:
    rows = [{"n": n} for n in range(500)] + [{"text": 'Herr Müller: say "12345" to a\\b in 漢字'}]
    reader, id = kept(json.dumps(rows, ensure_ascii=ascii))
    assert (await read(reader, id, grep=grep)).text.startswith("500: ")


@pytest.mark.requirement("P-RESULTS-READ")
async def test_what_is_found_is_paged_without_gaps_or_repeats() -> None:
    reader, id = kept(json.dumps(USERS))
    numbers, cursor = list[int](), "0"
    while cursor:
        page = await read(reader, id, grep="user1", cursor=cursor)
        numbers += [int(line.split(":")[0]) for line in page.text.splitlines()]
        cursor = next_cursor(page)
    assert numbers == [n for n in range(2_000) if str(n).startswith("1")]


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(
    ("grep", "count"),
    [
        (r"user(7|8)@", 2),
        (r"USER199\d@", 10),
        (r"nobody|nothing", 0),
        ("user7(", 0),
        ("[", 0),
        ("n{30}", 1),
        (r'^\{"id": 7,.*\}$', 1),
    ],
)
async def test_a_pattern_is_found_and_what_is_none_is_a_word(grep: str, count: int) -> None:
    reader, id = kept(json.dumps(USERS))
    answer = await read(reader, id, grep=grep)
    assert len(answer.text.splitlines()) == count
    assert answer.shown == count


@pytest.mark.requirement("P-RESULTS-READ", "P-NO-SLOW-PATTERNS")
@pytest.mark.parametrize("grep", ["(a+)+$", "(a|a)*b", "(.*)*x", r"^(([a-z])+.)+[A-Z]([a-z])+$"])
async def test_no_pattern_holds_the_gateway(grep: str) -> None:
    reader, id = kept("a" * 200_000)
    await read(reader, id, grep=grep)


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_word_that_stands_across_two_windows_is_found() -> None:
    for before in (262_140, 262_143, 262_144, 524_280):
        reader, id = kept("x" * before + "NEEDLE" + "y" * 300)
        assert (await read(reader, id, grep="needle")).shown == 1


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_path_selects_and_its_answer_is_paged_and_searched_too() -> None:
    reader, id = kept(json.dumps(USERS))
    assert (await read(reader, id, path="users[7].mail")).text == "user7@Example.com"
    assert json.loads((await read(reader, id, path="length(users)")).text) == 2_000
    page = await read(reader, id, path="users[*].id")
    found = json.loads(page.text)
    page = await read(reader, id, path="users[*].id", cursor=next_cursor(page))
    assert found + json.loads(page.text) == [*range(len(found) + len(json.loads(page.text)))]
    assert (await read(reader, id, path="users[*].mail", grep="user77@")).text == '77: "user77@Example.com"'
    assert (await read(reader, id, path="users[?id > `9999`]")).text == "[]"


@pytest.mark.requirement("P-RESULTS-READ")
async def test_an_item_that_no_page_can_hold_is_cut_and_the_way_to_the_whole_is_named() -> None:
    reader, id = kept(json.dumps({"rows": [{"id": 1}, {"id": 2, "text": "word " * 9_000}]}))
    page = await read(reader, id, cursor="1")
    assert json.loads(page.text)[0]["text"].startswith("word word")
    way = re.search(r"path '(.*?)'", page.next)
    assert way
    fields = await read(reader, id, path=way[1])
    assert json.loads(fields.text) == {"id": 2}
    deeper = await read(reader, id, path=way[1], cursor=next_cursor(fields))
    way = re.search(r"path '(.*?)'", deeper.next)
    assert way
    text = await read(reader, id, path=f"rows[1].{way[1]}")
    assert text.text.startswith("word word")
    assert next_cursor(text)


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cursor": "2002"}, "cursor: must be a number from 0 to 2000"),
        ({"cursor": "-1"}, "cursor: must be"),
        ({"cursor": "²"}, "cursor: must be"),
        ({"cursor": "9" * 5_000}, "cursor: must be"),
        ({"grep": "x" * (PATTERN_LENGTH + 1)}, "grep: longer than"),
        ({"path": "users["}, "path: Invalid jmespath expression"),
        ({"path": "nobody"}, "path: it selects nothing"),
    ],
)
async def test_a_question_that_cannot_be_answered_teaches(asked: dict[str, str], said: str) -> None:
    reader, id = kept(json.dumps(USERS))
    with pytest.raises(InvalidArguments, match=re.escape(said)) as caught:
        await read(reader, id, **asked)
    assert caught.value.next_call is not None
    if "path" in asked:
        assert "shape: {users: [{id: integer, mail: string}], note: string}" in str(caught.value)


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_path_into_text_says_that_it_is_text() -> None:
    reader, id = kept("no JSON " * 5_000)
    with pytest.raises(InvalidArguments, match="is text and not JSON"):
        await read(reader, id, path="a")


@pytest.mark.requirement("P-RESULTS-READ")
async def test_pages_go_on_through_all_texts_of_a_result() -> None:
    reader, id = kept("first\n" * 3, json.dumps([1, 2, 3]), "last\n")
    seen, cursor = list[str](), "0"
    while cursor:
        page = await read(reader, id, cursor=cursor)
        seen.append(page.text)
        cursor = next_cursor(page)
    assert seen == ["first\nfirst\nfirst", "[1,2,3]", "last"]


@pytest.mark.requirement("P-RESULTS-READ")
async def test_to_read_a_result_is_journalled_with_its_cost_and_without_its_handle() -> None:
    application = make_test_app({"fake": []})
    results = application.gateway.reader.truncator.results
    id = results.keep(CALLER, "a.b", (read_outline(json.dumps(USERS), 100).part,), 0)
    answer = await application.gateway.read_result(CALLER, id, grep="user5@")
    (look,) = application.gateway.executor.journal.lookups  # type: ignore[attr-defined]
    assert (look.look, look.caller, look.text, look.tokens) == ("read", "anna", "grep=user5@", answer.tokens)
    with pytest.raises(UnknownResult):
        await application.gateway.read_result(Caller(name="ben"), id)


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(("grep", "count"), [("^9$", 1), (r"^\d$", 10), ("9$", 2)])
async def test_a_pattern_may_ask_for_the_end_of_an_item_or_a_line(grep: str, count: int) -> None:
    for text in (json.dumps([*range(20)], indent=2), "\r\n".join(map(str, range(20)))):
        reader, id = kept(text)
        assert (await read(reader, id, grep=grep)).shown == count


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize("asked", [{"cursor": "0"}, {"path": "@"}, {"path": "[*]"}])
async def test_numbers_of_any_length_are_read_digit_by_digit(asked: dict[str, str]) -> None:
    numbers = [10**40 + n for n in range(20)]
    reader, id = kept(json.dumps(numbers))
    assert json.loads((await read(reader, id, **asked)).text) == numbers


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize("path", ["&a", "[&a]", "{x: &a}", "not_null(&a)", "to_array(&a)", "map(&[&a], users)"])
async def test_a_path_that_is_no_data_is_refused_and_shows_nothing_of_the_machine(path: str) -> None:
    reader, id = kept(json.dumps(USERS))
    with pytest.raises(InvalidArguments, match="& stands only before") as caught:
        await read(reader, id, path=path)
    assert "0x" not in str(caught.value)


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_path_into_what_is_nested_too_deeply_says_so() -> None:
    first = {"a": "b" * 200}  # which is all that the preview takes
    reader, id = kept(f"[{json.dumps(first)}, {'[' * 700}{']' * 700}]")
    assert json.loads((await read(reader, id, path="[0]")).text) == first
    assert json.loads((await read(reader, id, cursor="1")).text)
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        await read(reader, id, path="[1]")


@pytest.mark.requirement("P-RESULTS-READ")
async def test_paths_wait_for_each_other_and_pages_do_not_wait_for_paths() -> None:
    reader, id = kept(json.dumps(USERS))
    for _ in range(int(reader.paths.total_tokens)):
        await reader.paths.acquire_on_behalf_of(object())
    with fail_after(5):
        await read(reader, id, grep="user5@")
    async with create_task_group() as tasks:
        tasks.start_soon(reader.read, CALLER, ReadRequest(id=id, path="users[0]"))
        with fail_after(5):
            while not reader.paths.statistics().tasks_waiting:
                await lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
