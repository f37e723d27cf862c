"""Scripts that mean to use more than they may; each with the limits that may end it."""

from __future__ import annotations

CPU, MEMORY, CALLS, OUTPUT, WALL, OWN, DONE = "cpu_seconds", "memory_mb", "calls", "output_bytes", "seconds", "", "done"

DENIALS: dict[str, tuple[tuple[str, ...], str]] = {
    # Loops that catch whatever stops them
    "an endless loop": ((CPU,), "while true do end"),
    "a loop in pcall": ((CPU,), "while true do pcall(function() while true do end end) end"),
    "an error handler that loops": ((CPU,), "xpcall(error, function() while true do end end)"),
    "a handler that fails in its handler": (
        (CPU,),
        "while true do xpcall(error, function() error('x') end) end",
    ),
    "a loop in a coroutine": ((CPU,), "coroutine.wrap(function() while true do end end)()"),
    "coroutines in coroutines": (
        (CPU, MEMORY, OWN),
        "local function f() coroutine.wrap(f)() end while true do pcall(f) end",
    ),
    "a finaliser that loops": (
        (CPU,),
        "for i = 1, 1e9 do setmetatable({}, { __gc = function() while true do end end }) end",
    ),
    "a close handler that loops": (
        (CPU,),
        "do local x <close> = setmetatable({}, { __close = function() while true do end end }) end",
    ),
    "a metamethod that loops": (
        (CPU,),
        "local t = setmetatable({}, { __index = function(t, k) while true do end end }) return t.x",
    ),
    "an index chain in a circle": (
        (CPU, OWN),
        "local t = {} setmetatable(t, { __index = t }) while true do pcall(function() return t.x end) end",
    ),
    "a goto loop": ((CPU,), "::again:: goto again"),
    "a numeric loop": ((CPU,), "for i = 1, math.maxinteger do end"),
    "a loop over an endless iterator": ((CPU,), "for x in function() return 1 end do end"),
    "a sort whose order lies": (
        (CPU, OWN),
        "local t = {} for i = 1, 99 do t[i] = i end while true do pcall(table.sort, t, function() return 1 end) end",
    ),
    "a comparison that loops": ((CPU,), "table.sort({ 3, 2, 1 }, function() while true do end end)"),
    "recursion without an end": ((MEMORY, OWN), "local function f() return 1 + f() end f()"),
    "recursion in pcall": ((CPU, MEMORY, OWN), "local function f() pcall(f) f() end while true do pcall(f) end"),
    "tail calls without an end": ((CPU,), "local function f() return f() end f()"),
    "a tostring that loops": ((CPU,), "print(setmetatable({}, { __tostring = function() while true do end end }))"),
    "an error whose text loops": (
        (CPU,),
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
    ),
    # Long work inside one C function
    "a pattern that backtracks": ((CPU,), "string.find(('a'):rep(20000), '.-.-.-.-b')"),
    "a nested pattern": ((CPU,), "string.match(('a'):rep(30000), ('a*'):rep(30) .. 'b')"),
    "a pattern in gsub": ((CPU,), "string.gsub(('a'):rep(20000), '.-.-.-.-b', 'x')"),
    "a pattern in gmatch": ((CPU,), "for x in string.gmatch(('a'):rep(20000), '.-.-.-.-b') do end"),
    "balanced brackets": ((CPU, OWN, DONE), "for i = 1, 1e9 do string.find(('('):rep(20000), '%b()') end"),
    "table.move over a billion": ((CPU, MEMORY), "table.move({ 1 }, 1, 1e9, 2)"),
    "table.move in a lying table": (
        (CPU,),
        "table.move(setmetatable({}, { __index = function() return 1 end, __newindex = function() end }), 1, 1e12, 2)",
    ),
    "table.concat over a lying length": (
        (CPU, MEMORY, OWN),
        """
        local t = setmetatable({}, { __len = function() return 1e9 end, __index = function() return '' end })
        while true do pcall(table.concat, t) end
        """,
    ),
    "table.insert at the front": ((CPU, MEMORY), "local t = {} for i = 1, 1e7 do table.insert(t, 1, i) end"),
    "table.unpack of too many": ((CPU, OWN), "while true do pcall(table.unpack, {}, 1, 1e6) end"),
    "string.rep of nothing": ((CPU, OWN, DONE), "for i = 1, 1e12 do string.rep('', 1e9) end"),
    "utf8 over long text": ((CPU,), "local s = ('ä'):rep(1e6) while true do utf8.len(s) end"),
    "load of deep source": ((CPU, OWN), "while true do load(('('):rep(1e5)) end"),
    "load of endless parts": ((MEMORY, CPU), "load(function() return 'x = 1 ' end)"),
    "string.format of width": ((CPU, OWN), "while true do pcall(string.format, '%99.99f', 1e308) end"),
    "base64 without an end": ((CPU,), "local s = ('x'):rep(1e5) while true do base64.encode(s) end"),
    "json without an end": (
        (CPU,),
        "local t = {} for i = 1, 1000 do t[i] = i end while true do json.decode(json.encode(t)) end",
    ),
    # Memory
    "a huge text": ((MEMORY,), "return #string.rep('x', 1 << 30)"),
    "text that doubles": ((MEMORY,), "local s = 'x' while true do s = s .. s end"),
    "a list without an end": ((MEMORY, CPU), "local t = {} while true do t[#t + 1] = { #t } end"),
    "a table with many keys": ((MEMORY, CPU), "local t = {} for i = 1, 1e7 do t['k' .. i] = i end"),
    "gsub that multiplies": ((MEMORY,), "string.gsub(('x'):rep(1e5), '.', ('y'):rep(1e4))"),
    "table.concat that multiplies": (
        (MEMORY,),
        "local t = {} for i = 1, 1e4 do t[i] = ('x'):rep(1e4) end return #table.concat(t)",
    ),
    "many coroutines": ((MEMORY, CPU), "local t = {} while true do t[#t + 1] = coroutine.create(print) end"),
    "many closures": ((MEMORY, CPU), "local t = {} while true do t[#t + 1] = function() return t end end"),
    "memory errors that are caught": (
        (CPU, MEMORY),
        "local keep = {} while true do pcall(function() keep[#keep + 1] = ('x'):rep(1e5) .. #keep end) end",
    ),
    "string.pack of padding": (
        (MEMORY, OWN, CPU),
        "local t = {} for i = 1, 1e9 do t[i] = string.pack('!16 i16 i1', i, 1):rep(1000) end",
    ),
    # What goes out
    "more calls than allowed": ((CALLS,), "for i = 1, 10000 do calculator.echo() end"),
    "calls that are caught": ((CPU,), "while true do pcall(function() calculator.echo():await() end) end"),
    "arguments that are too large": ((MEMORY,), "calculator.echo({ value = ('x'):rep(1e6) })"),
    "a result that is too large": ((OUTPUT,), "result(('x'):rep(1e6))"),
    "a result with many parts": ((OUTPUT, CPU), "local t = {} for i = 1, 1e5 do t[i] = i end result(t)"),
    "prints without an end": ((CPU,), "while true do print(('x'):rep(100)) end"),
    "one huge print": ((DONE, MEMORY), "print(('x'):rep(4e6))"),
    "an answer that is too large": ((OWN,), "calculator.text({ size = 4e6 }):await()"),
    "answers that fill the memory": (
        (MEMORY, OWN, CPU),
        "local keep = {} for i = 1, 40 do keep[i] = calculator.text({ size = 1900000 }):await() .. i end",
    ),
    "a call that never answers": ((WALL,), "calculator.hang():await()"),
    "a call that is never awaited": ((WALL,), "calculator.hang()"),
    "a deep table": ((OWN,), "local t = {} for i = 1, 1e5 do t = { t } end result(t)"),
    "a table that contains itself": ((OWN,), "local t = {} t[1] = t result(t)"),
}
