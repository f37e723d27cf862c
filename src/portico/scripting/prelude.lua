-- What a script sees, built from an empty table, and how it is run. The two functions that reach the outside are
-- known to this file alone; nothing else in this state is anything but Lua.

local outer_send, outer_receive, load_codec, load_calls = ...

local debug_getinfo, metatable_of = debug.getinfo, debug.getmetatable
local byte, char, find, format, gmatch, gsub, match, sub =
  string.byte, string.char, string.find, string.format, string.gmatch, string.gsub, string.match, string.sub
local concat, pack, unpack, utf8_len = table.concat, table.pack, table.unpack, utf8.len
local collect, load_chunk, plain_tostring = collectgarbage, load, tostring
local clock, date, difftime, time = os.clock, os.date, os.difftime, os.time
local error, ipairs, next, pcall, rawget, rawset, select, setmetatable, tonumber, type, xpcall =
  error, ipairs, next, pcall, rawget, rawset, select, setmetatable, tonumber, type, xpcall
local everything = _G

local codec = load_codec()
local environment, builtins = {}, {}
local limits, hit, printed, cut = {}, {}, 0, 0
local value_text, value_exact = nil, false

-- Errors ------------------------------------------------------------------------------------------------------------

local function line_of()
  for level = 2, 30 do
    local info = debug_getinfo(level, "Sl")
    if not info then break end
    if info.short_src == "script" and info.currentline > 0 then return info.currentline end
  end
  return 0
end

local function fail(message)
  local line = line_of()
  error(line > 0 and "script:" .. line .. ": " .. message or message, 0)
end

local function limit_reached(limit, message)
  hit[message] = limit
  fail(message)
end

-- The outside fails only when it has no memory left; what it raises then is no Lua value, and must not be seen.
local function receive()
  local ok, frame = pcall(outer_receive)
  if not ok then error("not enough memory", 0) end
  return frame
end

local function send(frame)
  if not pcall(outer_send, frame) then error("not enough memory", 0) end
end

local function without_place(message) return (gsub(message, "^portico:%d+: ", "")) end

-- Call one of Lua's own functions so that its error speaks of the script's line.
local function relayed(ok, ...)
  if not ok then fail(without_place((...))) end
  return ...
end

-- Text --------------------------------------------------------------------------------------------------------------

local numbers, numbered = setmetatable({}, { __mode = "k" }), 0

-- Like Lua's own, but without addresses: they tell where things lie in memory.
local function show(value)
  local kind = type(value)
  if kind ~= "table" and kind ~= "function" and kind ~= "thread" and kind ~= "userdata" then return plain_tostring(value) end
  local meta = metatable_of(value)
  if meta and rawget(meta, "__tostring") then return plain_tostring(value) end
  if not numbers[value] then
    numbered = numbered + 1
    numbers[value] = numbered
  end
  return kind .. ": " .. numbers[value]
end

local function formatted(template, ...)
  if type(template) == "string" and find(gsub(template, "%%%%", ""), "%%[^%a]*p") then
    fail("'%p' is not available: nothing here has an address")
  end
  local given = pack(...)
  for index = 1, given.n do
    local kind = type(given[index])
    if kind == "table" or kind == "function" or kind == "thread" then given[index] = show(given[index]) end
  end
  return relayed(pcall(format, template, unpack(given, 1, given.n)))
end

-- Bytes that are not UTF-8 are replaced.
local function clean(text)
  local parts, from = {}, 1
  while true do
    local ok, bad = utf8_len(text, from)
    if ok then break end
    parts[#parts + 1] = sub(text, from, bad - 1) .. "\u{FFFD}"
    from = bad + 1
  end
  return from == 1 and text or concat(parts) .. sub(text, from)
end

local function quoted(text) return (codec.encode(clean(text), "text")) end

local function print(...)
  local given = pack(...)
  for index = 1, given.n do given[index] = show(given[index]) end
  local text = clean(concat(given, "\t", 1, given.n) .. "\n")
  local room = limits.printed_bytes - printed
  if #text > room then
    local keep = room
    while keep > 0 and (byte(text, keep + 1) & 0xC0) == 0x80 do keep = keep - 1 end -- no half characters
    cut = cut + #text - keep
    text = sub(text, 1, keep)
    limits.printed_bytes = printed + #text -- what comes later would stand behind a gap
  end
  if text == "" then return end
  printed = printed + #text
  send('{"kind":"print","text":' .. quoted(text) .. "}")
end

-- Base64 ------------------------------------------------------------------------------------------------------------

local SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local SIGN_OF, PLACE_OF = {}, {}
for place = 0, 63 do
  local sign = sub(SIGNS, place + 1, place + 1)
  SIGN_OF[place], PLACE_OF[byte(sign)] = sign, place
end
PLACE_OF[45], PLACE_OF[95] = 62, 63 -- the alphabet for URLs is read too

local function text_given(value, name)
  if type(value) ~= "string" then fail(name .. " takes text, and was given a " .. type(value)) end
  return value
end

local function base64_encode(data)
  return (gsub(text_given(data, "base64.encode"), "..?.?", function(group)
    local one, two, three = byte(group, 1, 3)
    local bits = one << 16 | (two or 0) << 8 | (three or 0)
    return SIGN_OF[bits >> 18] .. SIGN_OF[bits >> 12 & 63]
      .. (two and SIGN_OF[bits >> 6 & 63] or "=") .. (three and SIGN_OF[bits & 63] or "=")
  end))
end

local function base64_decode(text)
  local signs = gsub(gsub(text_given(text, "base64.decode"), "%s", ""), "=?=?$", "")
  if #signs % 4 == 1 or find(signs, "[^%w+/_-]") then fail("base64.decode was given text that is not base64") end
  return (gsub(signs, "..?.?.?", function(group)
    local one, two, three, four = byte(group, 1, 4)
    local bits = PLACE_OF[one] << 18 | PLACE_OF[two] << 12 | (three and PLACE_OF[three] or 0) << 6 | (four and PLACE_OF[four] or 0)
    local data = char(bits >> 16, bits >> 8 & 255, bits & 255)
    return sub(data, 1, #group - 1)
  end))
end

-- What a script sees ------------------------------------------------------------------------------------------------

local function keep_result(...)
  local text, exact, is_over = codec.encode((...), "result", limits.output_bytes)
  if is_over then limit_reached("output_bytes", exact .. ": return only what is needed, or a part of it") end
  if not text then fail(exact) end
  value_text, value_exact = text, exact
end

local function load_text(...)
  local chunk, name, _, given = ...
  if type(chunk) ~= "string" and type(chunk) ~= "function" then fail("load takes text, or a function that gives it") end
  if name ~= nil and type(name) ~= "string" then fail("the second value of load is a name") end
  return load_chunk(chunk, name, "t", select("#", ...) > 3 and given or environment)
end

local function encode_json(value)
  local text, problem = codec.encode(value, "value")
  return text or fail("json.encode: " .. problem)
end

local function decode_json(text)
  local value, problem = codec.decode(text_given(text, "json.decode"))
  if problem then fail("json.decode: " .. problem) end
  return value
end

local function only_count(what)
  if what ~= nil and what ~= "count" then fail('only collectgarbage("count") is available') end
  return collect("count")
end

local function in_utc(template, ...)
  if template == nil then template = "%c" end
  if type(template) == "string" and sub(template, 1, 1) ~= "!" then template = "!" .. template end
  return relayed(pcall(date, template, ...))
end

local function mark_array(list)
  if list == nil then list = {} end
  if type(list) ~= "table" then fail("array takes a plain table") end
  if codec.is_array(list) then return list end
  if metatable_of(list) then fail("array takes a plain table") end
  return codec.mark(list)
end

local function copy(library, without)
  local found = {}
  for key, value in next, library do found[key] = value end
  if without then found[without] = nil end
  return found
end

local function offer_language()
  local names = "assert error getmetatable ipairs next pairs pcall rawequal rawget rawlen rawset select setmetatable "
    .. "tonumber type xpcall _VERSION"
  for name in gmatch(names, "[%a_]+") do builtins[name] = everything[name] end
  builtins.coroutine, builtins.math = copy(everything.coroutine), copy(everything.math)
  builtins.table, builtins.utf8 = copy(everything.table), copy(everything.utf8)
  builtins.string = copy(everything.string, "dump")
  builtins.string.format = formatted
  builtins.os = { clock = clock, date = in_utc, difftime = difftime, time = time }
  builtins._G, builtins.collectgarbage, builtins.load = environment, only_count, load_text
  builtins.print, builtins.tostring = print, show
end

local function offer_ours(start, calls)
  builtins.array, builtins.null, builtins.result = mark_array, codec.null, keep_result
  builtins.base64 = { encode = base64_encode, decode = base64_decode }
  builtins.json = { encode = encode_json, decode = decode_json }
  builtins.args, builtins.servers, builtins.await_all = start.arguments, start.servers, calls.await_all
  builtins._gateway = calls.gateway("search, describe, read_result, list_resources, read_resource", line_of)
  for _, name in ipairs(start.servers) do builtins[name] = calls.server(name, line_of) end
end

local function guard(own, name, value)
  if name == "result" then fail("result is the function that sets the result: write result(value), and choose another name") end
  if builtins[name] ~= nil then
    fail(format("the global '%s' cannot be replaced: choose another name, or write local %s = ...", show(name), show(name)))
  end
  rawset(own, name, value)
end

local function all_pairs(own)
  local all = copy(builtins)
  for key, value in next, own do all[key] = value end
  return next, all, nil
end

local function lock_values()
  setmetatable(environment, { __index = builtins, __newindex = guard, __pairs = all_pairs, __metatable = false })
  local text_meta = metatable_of("")
  text_meta.__index, text_meta.__metatable = builtins.string, false
  local function is_null() fail("this value is null: compare it with == null before it is used") end
  local function is_big() fail("this integer has more than 64 bits: tostring() gives its digits, and it can be sent as it is") end
  for name in gmatch("add sub mul div mod pow unm idiv concat len lt le call index newindex", "%a+") do
    codec.null_meta["__" .. name], codec.bigint_meta["__" .. name] = is_null, is_big
  end
end

-- Running -----------------------------------------------------------------------------------------------------------

local function told(problem)
  if type(problem) == "string" then
    local line, reason = match(problem, "^script:(%d+): (.*)$")
    if line and #line < 10 then return { reason = reason, line = tonumber(line) } end -- others are no lines
    return { reason = without_place(problem), line = line_of() }
  end
  local meta = metatable_of(problem)
  local is_speaking = meta and rawget(meta, "__tostring")
  local ok, text = pcall(is_speaking and show or codec.encode, problem, "the error value", 10000)
  local reason = ok and type(text) == "string" and text or "a " .. type(problem)
  return { reason = "an error value: " .. reason, line = line_of() }
end

local function farewell(problem)
  if type(problem) ~= "table" then problem = { reason = show(problem), line = 0 } end
  local limit = ""
  for message, name in next, hit do
    if find(problem.reason, message, 1, true) then limit = name end
  end
  if problem.reason == "not enough memory" then limit = "memory_mb" end
  local text = quoted(sub(problem.reason, 1, 4000))
  send(format('{"kind":"error","line":%d,"limit":"%s","printed_cut":%d,"reason":%s}', problem.line, limit, cut, text))
end

local function finished(calls)
  local lost = calls.settle()
  for index = 1, #lost do lost[index] = clean(lost[index]) end
  lost = codec.encode(codec.mark(lost), "unawaited")
  local head = value_exact and '{"exact":true,' or "{"
  local value = value_text and ',"value":' .. value_text or ""
  send(concat({ head, '"kind":"done","printed_cut":', format("%d", cut), ',"unawaited":', lost, value, "}" }))
end

local function unread(problem)
  return problem == "not enough memory" and problem or "its arguments cannot be read: " .. problem
end

-- Several values that are returned together are a list; nil among them is null.
local function list_of(given)
  local list = codec.mark({})
  for index = 1, given.n do list[index] = given[index] == nil and codec.null or given[index] end
  return list
end

local function perform(source)
  local chunk, problem = load_chunk(source, "=script", "t", environment)
  if not chunk then error(problem, 0) end
  local given = pack(chunk())
  if not value_text and given.n > 0 then
    if given.n == 1 then keep_result(given[1]) else keep_result(list_of(given)) end
  end
end

offer_language()

return function()
  local is_read, start = pcall(codec.value_at, receive(), 1)
  if not is_read then return farewell({ reason = unread(start), line = 0 }) end
  limits = start.limits
  everything.math.randomseed(start.seed[1], start.seed[2])
  local calls = load_calls(codec, send, receive, fail, limit_reached, limits)
  offer_ours(start, calls)
  lock_values()
  for name in next, copy(everything) do everything[name] = nil end
  local ok, problem = xpcall(perform, told, start.source)
  if not ok then return farewell(problem) end
  finished(calls)
end
