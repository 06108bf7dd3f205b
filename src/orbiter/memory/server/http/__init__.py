"""The server below its routes: connections, authentication, limits, errors, shared state."""
