"""The MCP way in: one small module per surface, one server around them."""
