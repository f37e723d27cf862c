"""The ways in: MCP and the command line."""
