"""The routes of the server: REST, jobs, events, import and export, health, MCP."""
