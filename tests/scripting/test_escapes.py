"""Nothing but Lua and what was allowed can be reached from a script."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from portico.errors import ScriptError
from tests.scripting.escape_scripts import ATTEMPTS
from tests.scripting.fake_api import Runner

GLOBALS = """
_G _VERSION _gateway args array assert await_all base64.decode base64.encode calculator collectgarbage
coroutine.close coroutine.create coroutine.isyieldable coroutine.resume coroutine.running coroutine.status
coroutine.wrap coroutine.yield data_server error getmetatable ipairs json.decode json.encode load
math.abs math.acos math.asin math.atan math.ceil math.cos math.deg math.exp math.floor math.fmod math.huge math.log
math.max math.maxinteger math.min math.mininteger math.modf math.pi math.rad math.random math.randomseed math.sin
math.sqrt math.tan math.tointeger math.type math.ult next null os.clock os.date os.difftime os.time
pairs pcall print rawequal rawget rawlen rawset result select servers setmetatable
string.byte string.char string.find string.format string.gmatch string.gsub string.len string.lower string.match
string.pack string.packsize string.rep string.reverse string.sub string.unpack string.upper
table.concat table.insert table.move table.pack table.remove table.sort table.unpack
tonumber tostring type utf8.char utf8.charpattern utf8.codepoint utf8.codes utf8.len utf8.offset xpcall
""".split()
"""Everything that a script finds; a change of this list is a decision."""

SNAPSHOT = """
local found = array()
for name, value in pairs(_G) do
  local is_library = type(value) == "table" and value ~= _G and value ~= null and name ~= "args" and name ~= "servers"
  if is_library and next(value) ~= nil then
    for field in next, value do found[#found + 1] = name .. "." .. field end
  else
    found[#found + 1] = name
  end
end
table.sort(found)
return found
"""


@pytest.mark.requirement("T59")
def test_no_attempt_to_get_out_succeeds(run: Runner):
    run("string.left_behind = 1 left_behind = 1")
    succeeded = {name: value for name, source in ATTEMPTS.items() if (value := _outcome(run, source)) is not False}
    assert succeeded == {}
    assert len(ATTEMPTS) >= 70


@pytest.mark.requirement("S3-22", "T59")
def test_a_script_finds_exactly_the_globals_that_are_allowed(run: Runner):
    assert run.value(SNAPSHOT) == sorted(GLOBALS)


@pytest.mark.requirement("T58")
def test_what_one_script_changes_is_not_there_for_the_next(run: Runner):
    poison = """
    for name, value in pairs(_G) do
      if type(value) == "table" and value ~= _G then pcall(rawset, value, "poison", 1) end
    end
    string.rep, math.random, table.concat = nil, nil, nil
    rawset(_G, "print", false) rawset(_G, "poison", 1)
    """
    run(poison)
    assert run.value(SNAPSHOT) == sorted(GLOBALS)


@pytest.mark.requirement("T58")
def test_each_run_has_random_numbers_of_its_own(run: Runner):
    drawn = {run.value("math.randomseed = nil return math.random(1 << 60)") for _ in range(5)}
    assert len(drawn) == 5


@pytest.mark.requirement("T57")
def test_no_binary_chunk_is_loaded_however_it_is_bent(run: Runner):
    """Blobs that begin like compiled Lua, with bytes changed at random; none may load and none may end the process."""
    dice = random.Random(7)
    head = b"\x1bLua\x54\x00\x19\x93\r\n\x1a\n\x04\x08\x08\x78\x56" + bytes(6) + b"\x00\x00\x00(w@\x01\x80\x80\x80"
    blobs = []
    for _ in range(1_000):
        blob = bytearray(head + dice.randbytes(dice.randrange(200)))
        for _ in range(dice.randrange(6)):
            blob[dice.randrange(1, len(blob))] = dice.randrange(256)
        blobs.append(blob.decode("latin-1"))
    source = """
    local accepted = 0
    for _, blob in ipairs(args.blobs) do
      local bytes = blob:gsub("[\\xC2\\xC3][\\x80-\\xBF]", function(c) return string.char(utf8.codepoint(c)) end)
      local left = bytes
      local function parts() local part = left left = nil return part end
      if load(bytes) or load(bytes, "x", "b") or load(parts, "x", "bt") then
        accepted = accepted + 1
      end
    end
    return { accepted, #args.blobs }
    """
    assert run.value(source, {"blobs": blobs}) == [0, 1_000]


@pytest.mark.requirement("T57")
def test_a_binary_script_is_refused(run: Runner):
    error = run.error("\x1bLuaT\x00")
    assert "attempt to load a binary chunk" in error.reason


@pytest.mark.requirement("T64")
def test_errors_tell_nothing_of_this_machine(run: Runner):
    told = [run.error(f"local ok, e = pcall(function() {s} end) error(e or 'fine', 0)").reason for s in _PROVOKED]
    assert [text for text in told if any(sign in text for sign in ("0x", "/", ".py", "lupa", "Traceback"))] == []


def test_importing_the_engine_loads_no_lua():
    code = "import sys, portico.scripting.engine; sys.exit(any(name.startswith('lupa') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_PROVOKED = [
    "error({})",
    "error(print)",
    "local x = nil + 1",
    "local x = {} .. {}",
    "string.rep()",
    "string.format('%d', {})",
    "setmetatable(1, {})",
    "coroutine.wrap(error)({})",
    "calculator.add({ print })",
    "load({})",
    "json.decode('[')",
    "result(coroutine.create(print))",
    "string.rep('x', 1 << 40)",
    "table.sort({ {}, {} })",
    "for i = {}, 1 do end",
    "os.date('%Ez')",
    "utf8.codepoint('\\xff')",
    "select(-5)",
    "math.random(0, -1)",
    "tostring(setmetatable({}, { __tostring = function() return 1 end }))",
]


def _outcome(run: Runner, source: str) -> object:
    """What an attempt returns first; an error of its own is a failure to get out too."""
    try:
        value = run.value(source)
    except ScriptError as error:
        return False if error.limit == "" and "process" not in error.reason else str(error)
    return value[0] if isinstance(value, list) else value
