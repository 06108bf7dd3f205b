"""Stores that outlive the process. This package imports no driver; each module brings its own."""
