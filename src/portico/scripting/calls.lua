-- Calls: a call is sent at once and returns a future; to await it is to read answers until its own has come.

local codec, send, receive, fail, limit_reached, limits = ...

local concat, sort = table.concat, table.sort
local format, gmatch, match, sub, math_type = string.format, string.gmatch, string.match, string.sub, math.type
local error, ipairs, next, pcall, rawequal, select, setmetatable, tonumber, tostring, type =
  error, ipairs, next, pcall, rawequal, select, setmetatable, tonumber, tostring, type
local futures = codec.futures

local calls = {}
local pending, failed, made = {}, {}, 0

-- Futures -----------------------------------------------------------------------------------------------------------

local FUTURE = { __metatable = false, __name = "future" }

local function unawaited(one, other)
  local record = futures[one] or futures[other]
  fail(record.name .. " was not awaited: write :await() after the call")
end

for name in gmatch(
  "add sub mul div mod pow unm idiv band bor bxor shl shr bnot concat len lt le call newindex pairs close", "%a+"
) do
  FUTURE["__" .. name] = unawaited
end

function FUTURE.__tostring(future) return "the call " .. futures[future].name .. ", not awaited" end

-- Hear one answer, whosever it is.
local function hear()
  local frame = receive()
  local id, kind, at = match(frame, '^{"id":(%d+),"(%a+)":()')
  local record = pending[tonumber(id)]
  pending[record.id] = nil
  record.is_ready = true
  if kind == "error" then
    record.fault = codec.value_at(frame, at)
    failed[#failed + 1] = record
  else
    record.frame, record.at = frame, at
  end
end

local function wait(record)
  record.is_awaited = true
  while not record.is_ready do hear() end
end

local function value_of(record)
  if record.fault then
    local place = record.line > 0 and "script:" .. record.line .. ": " or ""
    error(place .. record.name .. ": " .. record.fault, 0)
  end
  if record.frame then -- unpacked when it is first wanted, and once
    record.value = codec.value_at(record.frame, record.at)
    record.frame = nil
  end
  return record.value
end

local function await(future)
  local record = futures[future]
  if not record then fail("await is called with a colon, as in server.tool({ name = value }):await()") end
  wait(record)
  return value_of(record)
end

function FUTURE.__index(future, key)
  if key == "await" then return await end
  unawaited(future)
end

-- Sending -----------------------------------------------------------------------------------------------------------

local function start(head, name, arguments, line)
  if made >= limits.calls then
    limit_reached("calls", format("a script may make %d calls: combine or leave out some", limits.calls))
  end
  local text, problem, is_over = codec.encode(arguments, "arguments", limits.argument_bytes)
  if is_over then limit_reached("memory_mb", name .. ": " .. problem .. ", which is what a call can carry: send less") end
  if not text then fail(name .. ": " .. problem) end
  if head.kind == "call" and sub(text, 1, 1) == "[" then
    fail(format("%s takes named arguments, as in %s({ name = value }), and was given a list", name, name))
  end
  made = made + 1 -- now: a finaliser may make a call of its own before this one is sent
  local record, future = { id = made, name = name, line = line }, setmetatable({}, FUTURE)
  local begin = problem and '{"exact":true,' or "{"
  local frame = concat({ begin, head.text, '"id":', tostring(record.id), ',"arguments":', text, "}" })
  pending[record.id], futures[future] = record, record
  local is_sent, why = pcall(send, frame)
  if not is_sent then -- without memory; nobody will answer it
    pending[record.id] = nil
    error(why, 0)
  end
  return future
end

local function quoted(text) return (codec.encode(text, "a name")) end

local function head_of(kind, fields)
  local parts = { '"kind":"', kind, '",' }
  for index = 1, #fields, 2 do
    parts[#parts + 1] = '"' .. fields[index] .. '":' .. quoted(fields[index + 1]) .. ","
  end
  return { kind = kind, text = concat(parts) }
end

local function locked(title, index, others)
  local meta = others or {}
  meta.__metatable, meta.__index = false, index
  meta.__tostring = meta.__tostring or function() return title end
  meta.__newindex = function() fail(title .. " cannot be changed: choose another name") end
  return setmetatable({}, meta)
end

local servers = setmetatable({}, { __mode = "k" })

local function check_arguments(name, count, first)
  if count > 0 and first ~= nil and servers[first] then
    fail(format("%s is called with a dot: %s({ name = value })", name, name))
  end
  if count > 1 or type(first) ~= "table" or rawequal(first, codec.null) then
    fail(format("%s takes one table of named arguments: %s({ name = value })", name, name))
  end
end

local function tool_of(server, tool, line_of)
  local name = server .. "." .. tool
  local head
  return function(...)
    local count, first = select("#", ...), (...)
    if count == 0 then first = {} else check_arguments(name, count, first) end
    head = head or head_of("call", { "server", server, "tool", tool })
    return start(head, name, first, line_of())
  end
end

-- The global of one server: any name in it is a tool, and a wrong one is answered when it is called.
function calls.server(server, line_of)
  local known = {}
  local function index(_, tool)
    if type(tool) ~= "string" or #tool > 1000 or not codec.encode(tool, "name") then fail("a tool's name is text, as in " .. server .. ".tool") end
    known[tool] = known[tool] or tool_of(server, tool, line_of)
    return known[tool]
  end
  local proxy = locked("the server " .. server, index, {
    __call = function() fail(format("%s is a server: call one of its tools, as in %s.tool({ name = value })", server, server)) end,
    __pairs = function() fail(format('%s is a server: write _gateway.search({ server = "%s" }):await() for its tools', server, server)) end,
  })
  servers[proxy] = true
  return proxy
end

-- The global `_gateway`: questions that are asked like calls.
function calls.gateway(questions, line_of)
  local known = {}
  for name in gmatch(questions, "[%a_]+") do
    local head = head_of("ask", { "question", name })
    known[name] = function(...)
      if select("#", ...) > 1 then fail("_gateway." .. name .. " takes one argument, or one table of named ones") end
      local first = (...)
      if first == nil then first = {} end
      return start(head, "_gateway." .. name, first, line_of())
    end
  end
  return locked("_gateway", function(_, name)
    return known[name] or fail(format("_gateway has no '%s'; it has: %s", tostring(name), questions))
  end)
end

-- Waiting for several -----------------------------------------------------------------------------------------------

local function first_fault(given)
  local first
  for _, future in next, given do
    local record = futures[future]
    if record and record.fault and (not first or record.id < first.id) then first = record end
  end
  return first
end

function calls.await_all(...)
  local given = (...)
  if select("#", ...) ~= 1 or type(given) ~= "table" or futures[given] then
    fail("await_all takes one table of calls: await_all({ first, second })")
  end
  local is_list = true
  for key, future in next, given do
    if futures[future] then wait(futures[future]) end
    is_list = is_list and math_type(key) == "integer"
  end
  local faulty = first_fault(given)
  if faulty then value_of(faulty) end
  local values = {}
  for key, future in next, given do
    if futures[future] then values[key] = value_of(futures[future]) else values[key] = future end
  end
  return is_list and codec.mark(values) or values
end

-- Wait for what the script did not await, and tell what went wrong in it, in the order of the calls.
function calls.settle()
  while next(pending) do hear() end
  sort(failed, function(one, other) return one.id < other.id end)
  local told = {}
  for _, record in ipairs(failed) do
    if not record.is_awaited and #told < 20 then
      told[#told + 1] = sub(format("line %d: %s: %s", record.line, record.name, record.fault), 1, 500)
    end
  end
  return told
end

return calls
