"""What `PostgresMemoryStore` stands on."""
