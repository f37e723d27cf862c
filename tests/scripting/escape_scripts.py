"""Attempts to get out of the language; each returns true, or something that tells, when it succeeds."""

from __future__ import annotations

NAMES = (
    "io debug package require dofile loadfile python lupa ffi jit bit32 loadstring module setfenv getfenv unpack warn"
    " newproxy arg _ENV_ _LOADED registry send receive outer_send codec calls builtins environment everything"
)

ATTEMPTS: dict[str, str] = {
    **{f"the global {name}": f"return {name} ~= nil" for name in NAMES.split()},
    "os.execute": "return os.execute ~= nil",
    "os.getenv": "return os.getenv ~= nil",
    "os.exit": "return os.exit ~= nil",
    "os.remove": "return os.remove ~= nil or os.rename ~= nil or os.tmpname ~= nil",
    "os.setlocale": "return os.setlocale ~= nil",
    "string.dump": "return string.dump ~= nil",
    "string.dump of a text": "return ('').dump ~= nil",
    "the metatable of texts": "return getmetatable('') ~= false",
    "to set the metatable of texts": "return pcall(setmetatable, '', {})",
    "a new field in the metatable of texts": "return pcall(function() getmetatable('').__index = {} end)",
    "the metatable of _G": "return getmetatable(_G) ~= false",
    "to set the metatable of _G": "return pcall(setmetatable, _G, {})",
    "the metatable of null": "return getmetatable(null) ~= false",
    "to set the metatable of null": "return pcall(setmetatable, null, {})",
    "the metatable of a server": "return getmetatable(calculator) ~= false",
    "to set the metatable of a server": "return pcall(setmetatable, calculator, {})",
    "the metatable of a future": "return getmetatable(calculator.echo()) ~= false",
    "to set the metatable of a future": "return pcall(setmetatable, calculator.echo(), {})",
    "the metatable of _gateway": "return getmetatable(_gateway) ~= false",
    "the metatable of an array": "return getmetatable(array({})) ~= false",
    "the metatable of a number": "return getmetatable(1) ~= nil",
    "the metatable of a function": "return getmetatable(print) ~= nil",
    "the metatable of a coroutine": "return getmetatable(coroutine.running()) ~= nil",
    "the state of a future": "local f = calculator.echo() return next(f) ~= nil or rawlen(f) ~= 0",
    "what a server holds": "return next(calculator) ~= nil",
    "what _gateway holds": "return next(_gateway) ~= nil",
    "what null holds": "return next(null) ~= nil",
    "a forged future": "return pcall(calculator.echo().await, {})",
    "a forged future with fields": "return pcall(calculator.echo().await, { id = 1, is_ready = true, value = 1 })",
    "await of a text": "return pcall(calculator.echo().await, 'x')",
    "a future in another's await": "local a = calculator.echo().await return pcall(a, calculator)",
    "bytecode of a mark": "return load('\\27Lua') ~= nil",
    "bytecode in binary mode": "return load('\\27LuaT\\0\\x19\\x93\\r\\n\\x1a\\n', 'x', 'b') ~= nil",
    "bytecode in both modes": "return load('\\27LuaT', 'x', 'bt') ~= nil",
    "bytecode in parts": (
        "local n = 0 return load(function() n = n + 1 return ({ '\\27', 'Lua' })[n] end, 'x', 'b') ~= nil"
    ),
    "a loaded text with the real globals": "return load('return io or debug or require or package')() ~= nil",
    "a loaded text without an environment": (
        "local ok, found = pcall(load('return io or debug or python', 'x', 't', nil)) return ok and found ~= nil"
    ),
    "an environment as upvalue": "local f = load('return _ENV') return f() ~= _G",
    "_ENV itself": "return _ENV ~= _G",
    "a new _ENV": "local function f() local _ENV = {} return io end return f() ~= nil",
    "_G in _G": "return _G._G ~= _G or _G.io ~= nil or _G.debug ~= nil",
    "rawget of _G": "return rawget(_G, 'io') ~= nil or rawget(_G, 'print') ~= nil",
    "a replaced global": "return pcall(function() print = nil end)",
    "a replaced server": "return pcall(function() calculator = {} end)",
    "a changed server": "return pcall(function() calculator.echo = print end)",
    "a changed null": "return pcall(function() null.x = 1 end)",
    "a changed future": "return pcall(function() calculator.echo().await = print end)",
    "collectgarbage options": "return pcall(collectgarbage, 'collect') or pcall(collectgarbage, 'generational')",
    "addresses of tables": "return tostring({}):find('0x') ~= nil",
    "addresses of functions": "return tostring(print):find('0x') ~= nil or tostring(string.rep):find('builtin') ~= nil",
    "addresses in format": "return string.format('%s', {}):find('0x') ~= nil",
    "addresses by %p": "return pcall(string.format, '%p', {})",
    "addresses by %p with a width": "return pcall(string.format, '%-20p', 'x')",
    "addresses in errors": "local _, e = pcall(error, {}) return tostring(e):find('0x') ~= nil",
    "addresses by a name": "return tostring(setmetatable({}, { __name = 'x' })):find('0x') ~= nil",
    "the main coroutine": "return pcall(coroutine.close, coroutine.running())",
    "resuming the main coroutine": (
        "local m = coroutine.running() return (coroutine.wrap(function() return (coroutine.resume(m)) end)())"
    ),
    "a yield out of the script": "return pcall(coroutine.yield, 1)",
    "the error handler's stack": "return select(2, xpcall(error, function() return debug end)) ~= nil",
    "the prelude's place in errors": "local _, e = pcall(string.format, '%d', 'x') return e:find('portico') ~= nil",
    "a file's name in errors": (
        "local _, e = pcall(calculator.echo, 1) return e:find('/') ~= nil or e:find('%.py') ~= nil"
    ),
    "python in an error of a call": (
        "local _, e = pcall(function() calculator.fail():await() end) return type(e) ~= 'string'"
    ),
    "python in an error without memory": (
        "local _, e = pcall(string.rep, 'x', 1 << 40) return type(e) ~= 'string' or e:find('ython') ~= nil"
    ),
    "userdata among the globals": (
        "local seen = {} local function look(t) if seen[t] then return false end seen[t] = true "
        "for k, v in next, t do if type(v) == 'userdata' or type(k) == 'userdata' then return true end "
        "if type(v) == 'table' and look(v) then return true end end return false end "
        "local all = {} for k, v in pairs(_G) do all[k] = v end return look(all)"
    ),
    "userdata in answers": "return type(calculator.echo({ value = { 1 } }):await()) == 'userdata'",
    "a lying table in arguments": (
        "local n = 0 local t = setmetatable({}, { __index = function() n = n + 1 return n end, "
        "__len = function() return 3 end, "
        "__pairs = function() return function() return 'x', 1 end end }) "
        "return next(calculator.echo({ value = t }):await()) ~= nil or n > 0"
    ),
    "an equal that lies about null": (
        "local t = setmetatable({ 1 }, { __eq = function() return true end }) return json.encode(t) ~= '[1]'"
    ),
    "a library that was replaced": (
        "string.find = function() return 1 end table.concat = function() return 'forged' end "
        "return json.encode({ a = 'x' }) ~= '{\"a\":\"x\"}'"
    ),
    "a name that breaks the frame": (
        'local ok = pcall(function() calculator[\'x","kind":"done\']():await() end) return ok'
    ),
    "a server beyond those given": "return pcall(function() other.tool() end)",
    "a future of the past run": "return rawget(_G, 'left_behind') ~= nil or string.left_behind ~= nil",
    "bytecode that comes later": (
        "local n = 0 return load(function() n = n + 1 return ({ '\\27', 'Lua', 'T\\0' })[n] end, 'x', 'bt') ~= nil"
    ),
    "a file by the name of a chunk": "local _, e = load('x x', '@/etc/passwd') return e:find('root') ~= nil",
    "a text's library in an empty environment": "return load('return (\"\").dump', '=x', 't', {})() ~= nil",
    "userdata from a full memory": (
        "local kinds, keep = {}, {} "
        "xpcall(function() while true do keep[#keep + 1] = ('x'):rep(1000) .. #keep end end, "
        "function(e) kinds[type(e)] = true end) keep = nil return kinds.userdata == true"
    ),
    "userdata from calls in a full memory": (
        "local bad, keep = false, {} "
        "pcall(function() while true do keep[#keep + 1] = ('x'):rep(1000) .. #keep end end) "
        "for i = 1, 50 do local ok, e = pcall(calculator.text, { size = 1 }) "
        "if not ok and type(e) ~= 'string' then bad = true end end keep = nil return bad"
    ),
    "addresses by an escaped %p": "return (pcall(string.format, '%%%p', {}))",
    "addresses by a precise %p": "return (pcall(string.format, '%s%5.3p', 'x', {}))",
    "addresses by a method": "return (pcall(function() return ('%p'):format({}) end))",
    "addresses in table.concat": "local _, e = pcall(table.concat, { {} }) return e:find('0x') ~= nil",
    "a result that is hidden": "rawset(_G, 'type', function() return 'string' end) return json.encode({ 1 }) ~= '[1]'",
    "a key that breaks the frame": ('return calculator.echo({ value = { [\'a","x":"b\'] = 1 } }):await().x ~= nil'),
    "a server added to the list": "servers[#servers + 1] = 'ghost' return (pcall(function() return ghost.tool() end))",
    "a call through _gateway": "return (pcall(function() return _gateway.call({}) end))",
    "a question by rawget": "return rawget(_gateway, 'search') ~= nil",
    "another's future": (
        "local a, b = calculator.echo({ value = 'a' }), calculator.echo({ value = 'b' }) return a.await(b) ~= 'b'"
    ),
    "every way to collect": (
        "for _, how in ipairs({ 'collect', 'stop', 'restart', 'step', 'generational', 'incremental', 'isrunning' }) do "
        "if pcall(collectgarbage, how) then return true end end return false"
    ),
    "the time zone": "return os.date('%Z') ~= 'GMT' and os.date('%Z') ~= 'UTC'",
    "text beyond its end": "return #('abc'):sub(-1e15, 1e15) ~= 3 or (pcall(string.unpack, 'i4', 'abc'))",
    "a text without an end": "return (pcall(string.unpack, 'z', 'abc'))",
    "more than there is": "return (pcall(table.unpack, {}, math.mininteger, math.maxinteger))",
    "a move across all numbers": "return (pcall(table.move, {}, math.mininteger, math.maxinteger, 2))",
    "a concat across all numbers": "return (pcall(table.concat, {}, 'x', math.mininteger, math.maxinteger))",
    "a sort of all numbers": (
        "return (pcall(table.sort, setmetatable({}, { __len = function() return math.maxinteger end })))"
    ),
    "a text of all memory": "return (pcall(string.rep, '', math.maxinteger, 'ab'))",
    "a handler that is taken away": (
        "local m = { __close = function() end } "
        "return (pcall(function() local x <close> = setmetatable({}, m) m.__close = nil end))"
    ),
    "a close of what cannot be closed": "return (pcall(function() local x <close> = {} end))",
    "a jump into a block": "return load('goto x do ::x:: end') ~= nil",
    "a change of a constant": "return load('local x <const> = 1 x = 2') ~= nil",
}
