"""Real MCP servers from the public registries, for journeys through the gateway."""
