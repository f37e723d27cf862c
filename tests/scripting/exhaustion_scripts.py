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
    "load of endless parts": ((MEMORY, CPU, DONE), "load(function() return 'x = 1 ' end)"),
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
    "an answer that is too large": ((OWN,), "calculator.text({ size = 5e6 }):await()"),
    "answers that fill the memory": (
        (MEMORY, OWN, CPU),
        "local keep = {} for i = 1, 40 do keep[i] = calculator.text({ size = 1900000 }):await() .. i end",
    ),
    "a call that never answers": ((WALL,), "calculator.hang():await()"),
    "a call that is never awaited": ((WALL,), "calculator.hang()"),
    "a deep table": ((OWN,), "local t = {} for i = 1, 1e5 do t = { t } end result(t)"),
    "a table that contains itself": ((OWN,), "local t = {} t[1] = t result(t)"),
    # What Lua 5.4 has of its own
    "a close handler that fails": (
        (CPU,),
        """
        local failing = { __close = function() error("x") end }
        while true do pcall(function() local a <close> = setmetatable({}, failing) error("y") end) end
        """,
    ),
    "close handlers in close handlers": (
        (OWN,),
        "local function f() local a <close> = setmetatable({}, { __close = f }) end f()",
    ),
    "a loop in coroutine.close": (
        (CPU,),
        """
        local looping = { __close = function() while true do end end }
        local co = coroutine.create(function() local a <close> = setmetatable({}, looping) coroutine.yield() end)
        coroutine.resume(co) coroutine.close(co)
        """,
    ),
    "a coroutine that resumes itself": (
        (CPU,),
        "local co co = coroutine.create(function() while true do coroutine.resume(co) end end) coroutine.resume(co)",
    ),
    "a coroutine in a finaliser": (
        (CPU,),
        """
        local loop = function() coroutine.wrap(function() while true do end end)() end
        for i = 1, 1e9 do setmetatable({}, { __gc = loop }) end
        """,
    ),
    "a finaliser that makes its like": (
        (CPU,),
        "local function again() setmetatable({}, { __gc = again }) end again() while true do local t = {} end",
    ),
    "a finaliser that calls": (
        (CPU, WALL),
        "for i = 1, 1e9 do setmetatable({}, { __gc = function() pcall(calculator.echo, {}) end }) end",
    ),
    "a finaliser that prints": (
        (CPU,),
        "for i = 1, 1e9 do setmetatable({}, { __gc = function() print(i) end }) end",
    ),
    "an error handler that fails for ever": (
        (CPU,),
        "local function h(e) return xpcall(error, h, e) end while true do xpcall(error, h, 'x') end",
    ),
    "an error whose text is an error": (
        (OWN,),
        "local t t = setmetatable({}, { __tostring = function() error(t) end }) error(t)",
    ),
    "an environment that loops": (
        (CPU,),
        "local _ENV = setmetatable({}, { __index = function() while true do end end }) return x",
    ),
    "a length that loops": ((CPU,), "return #setmetatable({}, { __len = function() while true do end end })"),
    "a comparison of tables that loops": (
        (CPU,),
        "local m = { __lt = function() while true do end end } return setmetatable({}, m) < setmetatable({}, m)",
    ),
    "a call of itself": ((CPU,), "local m = {} local t = setmetatable({}, m) m.__call = t while true do pcall(t) end"),
    "a sort of a lying length": (
        (CPU, OWN),
        """
        table.sort(setmetatable({}, {
          __len = function() return (1 << 31) - 2 end, __index = function() return 1 end, __newindex = function() end,
        }))
        """,
    ),
    "table.remove of a lying length": (
        (CPU,),
        "table.remove(setmetatable({}, { __len = function() return 1 << 40 end }), 1)",
    ),
    "string.pack of a length": ((MEMORY, OWN), "return #string.pack('c2000000000', 'x')"),
    "string.rep with a separator": ((MEMORY,), "return #string.rep('', 1e9, 'x')"),
    "table.concat with a separator": (
        (MEMORY,),
        "local t = {} for i = 1, 1000 do t[i] = '' end return #table.concat(t, ('x'):rep(1e6))",
    ),
    "utf8.char of many": (
        (MEMORY, CPU, OWN),
        "local t = {} for i = 1, 2e5 do t[i] = 0x7FFFFFFF end while true do utf8.char(table.unpack(t)) end",
    ),
    "a reference to a capture": ((CPU,), "string.find(('a'):rep(5e4), '(.-)%1%1%1b')"),
    "frontiers": ((CPU,), "string.find(('a '):rep(3e4), ('%f[%a].-'):rep(8) .. '$%d')"),
    "a large class in a pattern": ((CPU,), "string.find(('a'):rep(1e5), '[' .. ('b-z'):rep(1e4) .. ']*c')"),
    "a reader that loops": ((CPU,), "load(function() while true do end end)"),
    "a comment without an end": (
        (MEMORY, CPU),
        "local n = 0 load(function() n = n + 1 return n == 1 and '--[[' or ('-'):rep(1000) end)",
    ),
    "many constants": (
        (MEMORY, CPU, DONE),
        "local t = {} for i = 1, 3e5 do t[i] = 'a' .. i .. '=1' end load(table.concat(t, ' '))",
    ),
    "weak tables": (
        (CPU, MEMORY),
        "local t = setmetatable({}, { __mode = 'k' }) while true do local k = {} t[k] = k end",
    ),
    "memory that is full, and then calls": (
        (MEMORY, CPU, OWN),
        """
        local keep = {}
        pcall(function() while true do keep[#keep + 1] = ("x"):rep(100) .. #keep end end)
        while true do pcall(function() calculator.text({ size = 1e5 }):await() end) end
        """,
    ),
    "memory that is full, and then prints": (
        (MEMORY, CPU),
        """
        local keep = {}
        pcall(function() while true do keep[#keep + 1] = ("x"):rep(100) .. #keep end end)
        while true do pcall(print, "x") end
        """,
    ),
    "json that never ends": ((CPU,), "local s = ('['):rep(1e6) while true do pcall(json.decode, s) end"),
    "long integers": ((CPU,), "local s = ('9'):rep(1e6) while true do pcall(json.decode, s) end"),
    "one table a hundred thousand times": (
        (MEMORY, CPU),
        "local one, t = array(), {} for i = 1, 1.1e5 do t[i] = one end calculator.echo({ value = t })",
    ),
    "large arguments and answers at once": (
        (CPU, MEMORY, DONE, CALLS),
        """
        local text, made = ("x"):rep(4e5), {}
        for i = 1, 50 do made[i] = calculator.echo({ value = text }) end
        await_all(made)
        """,
    ),
    "large errors that nobody reads": (
        (CPU,),
        "local s = ('x'):rep(4e5) for i = 1, 50 do calculator.fail({ why = s }) end while true do end",
    ),
    "large answers that nobody reads": (
        (CPU,),
        "for i = 1, 50 do calculator.text({ size = 1900000 }) end while true do end",
    ),
    "a call in a close handler": (
        (WALL,),
        "do local a <close> = setmetatable({}, { __close = function() calculator.hang():await() end }) end",
    ),
    "printed bytes that are no text": ((CPU,), "while true do print(('\\xff'):rep(1e5)) end"),
    "dates without an end": ((CPU,), "while true do os.date(('%c'):rep(1e4)) end"),
}
