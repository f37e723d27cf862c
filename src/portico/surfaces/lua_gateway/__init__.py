"""The `gateway` surface: servers, their tools, and Lua scripts that call many."""
