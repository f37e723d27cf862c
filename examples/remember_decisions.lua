-- Reads every note of a folder, remembers its decisions, and returns one line.
local listing = filesystem.list_directory({ path = args.folder }):await().content
local notes = {}
for name in listing:gmatch("%[FILE%] (%S+%.md)") do
  notes[name] = filesystem.read_text_file({ path = args.folder .. "/" .. name })
end

local entities = {}
for name, note in pairs(await_all(notes)) do
  for what, who in note.content:gmatch("DECIDED: (.-) %((%a+)%)") do
    entities[#entities + 1] = { name = what, entityType = "decision", observations = { "by " .. who, "in " .. name } }
  end
end
memory.create_entities({ entities = entities }):await()
result("remembered " .. #entities .. " decisions")
