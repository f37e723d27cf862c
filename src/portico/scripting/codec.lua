-- JSON in pure Lua. Every value that crosses the boundary is copied here, once, and by raw access only:
-- metatables cannot lie, and all memory is the script's own.

local byte, char, find, format, gsub, match, sub =
  string.byte, string.char, string.find, string.format, string.gsub, string.match, string.sub
local concat, sort = table.concat, table.sort
local utf8_char, utf8_len = utf8.char, utf8.len
local math_type, huge = math.type, math.huge
local next, pcall, rawequal, rawget, setmetatable, tonumber, tostring, type, error =
  next, pcall, rawequal, rawget, setmetatable, tonumber, tostring, type, error
local metatable_of = debug.getmetatable

local ENCODE_DEPTH, DECODE_DEPTH = 100, 200
local MOST_VALUES = 100000 -- in what leaves the script: the gateway stands still while it reads them
local MOST_DIGITS = 1000 -- of one integer: longer ones are refused by other readers, and slow

local codec = {}

-- Marks -------------------------------------------------------------------------------------------------------------

local ARRAY = { __metatable = false, __name = "array" }
local NULL = { __metatable = false, __name = "null", __tostring = function() return "null" end }
local digits = setmetatable({}, { __mode = "k" })
local BIGINT = { __metatable = false, __name = "bigint" }

codec.null = setmetatable({}, NULL)
codec.null_meta, codec.bigint_meta = NULL, BIGINT
codec.futures = setmetatable({}, { __mode = "k" }) -- filled where calls are made

function BIGINT.__tostring(value) return digits[value] end
function BIGINT.__eq(one, other) return digits[one] ~= nil and digits[one] == digits[other] end

local function bigint(text)
  local value = setmetatable({}, BIGINT)
  digits[value] = text
  return value
end

function codec.mark(list) return setmetatable(list, ARRAY) end
function codec.is_array(value) return metatable_of(value) == ARRAY end

-- Encoding ----------------------------------------------------------------------------------------------------------

local OVER, MANY = {}, {}
local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
for code = 0, 127 do
  local one = char(code)
  if find(one, "%c") and not ESCAPES[one] then ESCAPES[one] = format("\\u%04x", code) end
end

local function is_text(value)
  if utf8_len(value) then return true end
  -- Lone surrogates may come in JSON's escapes and must go out again; nothing else beyond UTF-8 may.
  return utf8_len(value, 1, -1, true) and not find(value, "[\xF5-\xFF]") and not find(value, "\xF4[\x90-\xBF]")
end

local function short(text)
  return #text > 40 and sub(text, 1, 40) .. "..." or text
end

local function place(name, path, depth)
  local parts = { name }
  for level = 1, depth do
    local key = path[level]
    if type(key) == "number" then
      parts[#parts + 1] = "[" .. key .. "]"
    elseif find(key, "^[%a_][%w_]*$") then
      parts[#parts + 1] = "." .. short(key)
    else
      parts[#parts + 1] = '["' .. short(gsub(key, "[^ -~]", "?")) .. '"]'
    end
  end
  return concat(parts)
end

local function number_text(value)
  if math_type(value) == "integer" then return format("%d", value) end
  if value ~= value or value == huge or value == -huge then return nil end
  local text = format("%.15g", value)
  if tonumber(text) ~= value then text = format("%.17g", value) end
  if not find(text, "[.e]") then text = text .. ".0" end
  return text
end

local ADVICE = {
  ["function"] = "is a function, which cannot be sent: send its result",
  thread = "is a coroutine, which cannot be sent: send what it gives",
  userdata = "cannot be sent: only JSON values can",
}

local function encoder(name, room)
  local parts, count, size, values, exact = {}, 0, 0, 0, false
  local path, open, walk = {}, {}, nil

  local function refuse(depth, why) error(place(name, path, depth) .. " " .. why, 0) end

  local function emit(text)
    count, size = count + 1, size + #text
    if size > room then error(OVER, 0) end
    parts[count] = text
  end

  local function quote(text, depth)
    if find(text, "[\128-\255]") and not is_text(text) then
      refuse(depth, "is not valid UTF-8 text: for binary data write base64.encode(data)")
    end
    if find(text, '[%c"\\]') then text = gsub(text, '[%c"\\]', ESCAPES) end
    emit('"' .. text .. '"')
  end

  local function shape(value, depth)
    local total, top, named = 0, 0, {}
    for key in next, value do
      total = total + 1
      if type(key) == "string" then
        named[#named + 1] = key
      elseif math_type(key) == "integer" and key >= 1 then
        if key > top then top = key end
      else
        local shown = type(key) == "number" and tostring(key) or "of type " .. type(key)
        refuse(depth, "has a key " .. shown .. ": keys are strings, or 1 to n for a list; write tostring(key)")
      end
    end
    if #named == 0 then
      if top ~= total then
        refuse(depth, format("is a list with gaps: %d items up to index %d; put null in empty places", total, top))
      end
      return (total > 0 or metatable_of(value) == ARRAY) and "list" or "object", named, total
    end
    if #named < total then refuse(depth, "has list items and named fields at once: use one or the other") end
    if metatable_of(value) == ARRAY then refuse(depth, "is an array that has named fields: use a plain table") end
    sort(named)
    return "object", named, total
  end

  local function list(value, total, depth)
    emit("[")
    for index = 1, total do
      if index > 1 then emit(",") end
      path[depth + 1] = index
      walk(rawget(value, index), depth + 1)
    end
    emit("]")
  end

  local function object(value, named, depth)
    emit("{")
    for index = 1, #named do
      local key = named[index]
      if index > 1 then emit(",") end
      path[depth + 1] = key
      quote(key, depth + 1)
      emit(":")
      walk(rawget(value, key), depth + 1)
    end
    emit("}")
  end

  local function container(value, depth)
    if open[value] then refuse(depth, "contains itself: JSON has no cycles; build a copy of what is needed") end
    if depth >= ENCODE_DEPTH then refuse(depth, "is nested deeper than " .. ENCODE_DEPTH .. " levels: flatten it") end
    open[value], values = true, values + 1 -- a table costs its reader twice as much as a plain value
    local kind, named, total = shape(value, depth)
    if kind == "list" then list(value, total, depth) else object(value, named, depth) end
    open[value] = nil
  end

  function walk(value, depth)
    local kind = type(value)
    values = values + 1
    if values > MOST_VALUES and room < huge then error(MANY, 0) end
    if kind == "string" then
      quote(value, depth)
    elseif kind == "number" then
      emit(number_text(value) or refuse(depth, "is " .. tostring(value) .. ": JSON has finite numbers only; use null or a string"))
    elseif kind == "boolean" or kind == "nil" then
      emit(kind == "nil" and "null" or tostring(value))
    elseif kind ~= "table" then
      refuse(depth, ADVICE[kind])
    elseif rawequal(value, codec.null) then
      emit("null")
    elseif digits[value] then
      exact = true
      emit(digits[value])
    elseif codec.futures[value] then
      refuse(depth, "is the call " .. codec.futures[value].name .. ", which was not awaited: write :await() after the call")
    else
      container(value, depth)
    end
  end

  return function(value)
    walk(value, 0)
    return concat(parts), exact
  end
end

-- The text and whether it has integers beyond 64 bits; or nil, what is wrong, and whether it is just too large.
function codec.encode(value, name, room)
  local ok, text, exact = pcall(encoder(name, room or huge), value)
  if ok then return text, exact end
  if text == OVER then return nil, name .. " takes more than " .. room .. " bytes as JSON", true end
  if text == MANY then return nil, "more than " .. MOST_VALUES .. " values (tables count twice) are in " .. name, true end
  return nil, text, false
end

-- Decoding ----------------------------------------------------------------------------------------------------------

local UNESCAPED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }
local LITERALS = { [116] = { "true", true }, [102] = { "false", false }, [110] = { "null", codec.null } }

local function wrong(at, why) error("byte " .. at .. ": " .. why, 0) end

-- The next byte that is no white space, and its place.
local function sign_at(text, at)
  local sign = byte(text, at)
  if sign and sign > 32 then return sign, at end
  at = match(text, "^[ \n\r\t]*()", at)
  return byte(text, at), at
end

local function escaped(text, at)
  local kind = sub(text, at + 1, at + 1)
  if UNESCAPED[kind] then return UNESCAPED[kind], at + 2 end
  local code = kind == "u" and match(text, "^%x%x%x%x", at + 2)
  if not code then wrong(at, "a bad escape in a string") end
  code = tonumber(code, 16)
  if code >= 0xD800 and code < 0xDC00 then
    local low = match(text, "^\\u([dD][c-fC-F]%x%x)", at + 6)
    if low then return utf8_char(0x10000 + (code - 0xD800) * 1024 + (tonumber(low, 16) - 0xDC00)), at + 12 end
  end
  return utf8_char(code), at + 6
end

local function string_at(text, at)
  local parts, count, from = nil, 0, at
  while true do
    local stop = find(text, '["\\\0-\31]', from)
    if not stop then wrong(at, "a string that does not end") end
    local sign = byte(text, stop)
    if sign == 34 then
      local last = sub(text, from, stop - 1)
      if not parts then return last, stop + 1 end
      parts[count + 1] = last
      return concat(parts), stop + 1
    elseif sign ~= 92 then
      wrong(stop, "a control character in a string")
    end
    parts = parts or {}
    local one, after = escaped(text, stop)
    parts[count + 1], parts[count + 2] = sub(text, from, stop - 1), one
    count, from = count + 2, after
  end
end

local function number_at(text, at)
  local whole, after = match(text, "^(-?%d+)()", at)
  if not whole then wrong(at, "not a JSON value") end
  local first = byte(whole, 1) == 45 and 2 or 1
  if byte(whole, first) == 48 and #whole > first then wrong(at, "a number that begins with 0") end
  local sign = byte(text, after)
  if sign ~= 46 and sign ~= 101 and sign ~= 69 then
    if #whole > MOST_DIGITS then wrong(at, "an integer of more than " .. MOST_DIGITS .. " digits") end
    local value = tonumber(whole)
    return math_type(value) == "integer" and value or bigint(whole), after
  end
  local fraction, past = match(text, "^(%.%d+)()", after)
  local power, stop = match(text, "^([eE][+-]?%d+)()", past or after)
  if not fraction and not power then wrong(after, "not a JSON number") end
  local value = tonumber(whole .. (fraction or "") .. (power or ""))
  if value == huge or value == -huge then wrong(at, "a number beyond what a float can hold") end
  return value, stop or past
end

local value_at

local function array_at(text, at, depth)
  local list, count, sign = setmetatable({}, ARRAY), 0, nil
  sign, at = sign_at(text, at)
  if sign == 93 then return list, at + 1 end
  while true do
    count = count + 1
    list[count], at = value_at(text, at, depth)
    sign, at = sign_at(text, at)
    if sign == 93 then return list, at + 1 end
    if sign ~= 44 then wrong(at, "expected ',' or ']'") end
    at = at + 1
  end
end

local function object_at(text, at, depth)
  local object, key, sign = {}, nil, nil
  sign, at = sign_at(text, at)
  if sign == 125 then return object, at + 1 end
  while true do
    sign, at = sign_at(text, at)
    if sign ~= 34 then wrong(at, "expected a name in quotes") end
    key, at = string_at(text, at + 1)
    sign, at = sign_at(text, at)
    if sign ~= 58 then wrong(at, "expected ':'") end
    object[key], at = value_at(text, at + 1, depth)
    sign, at = sign_at(text, at)
    if sign == 125 then return object, at + 1 end
    if sign ~= 44 then wrong(at, "expected ',' or '}'") end
    at = at + 1
  end
end

function value_at(text, at, depth)
  if depth > DECODE_DEPTH then wrong(at, "nested deeper than " .. DECODE_DEPTH .. " levels") end
  local sign
  sign, at = sign_at(text, at)
  if sign == 34 then return string_at(text, at + 1) end
  if sign == 123 then return object_at(text, at + 1, depth + 1) end
  if sign == 91 then return array_at(text, at + 1, depth + 1) end
  local literal = sign and LITERALS[sign]
  if not literal then return number_at(text, at) end
  if sub(text, at, at + #literal[1] - 1) ~= literal[1] then wrong(at, "not a JSON value") end
  return literal[2], at + #literal[1]
end

-- The value that begins at a byte, and where it ends; raises a string.
codec.value_at = function(text, at) return value_at(text, at, 0) end

-- The one value of a text; or nil and what is wrong.
function codec.decode(text)
  local ok, value, at = pcall(value_at, text, 1, 0)
  if not ok then return nil, value end
  local _
  _, at = sign_at(text, at)
  if at <= #text then return nil, "byte " .. at .. ": there is something after the value" end
  return value
end

return codec
