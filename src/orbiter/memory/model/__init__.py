"""Values and rules of memory, without I/O: items, filters, queries, reports, protocols, facts."""
