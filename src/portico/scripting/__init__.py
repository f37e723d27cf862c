"""Scripts that agents write in Lua: each runs in a process of its own, held in from outside."""
