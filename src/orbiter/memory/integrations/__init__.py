"""Adapters for agent frameworks: one module for each, over the public API of a handle.

They keep what a framework keeps in the same file, database or server as the memories of a scope,
so that isolation, `erase` and backups cover it, too. A module is imported by its own name, such as
`orbiter.memory.integrations.langgraph`, and needs its framework; nothing of it is loaded before.
"""
