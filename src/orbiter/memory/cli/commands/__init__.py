"""The commands of `orbiter-memory`, a module for each."""
