"""Formats of other programs that can be imported, a module for each."""
