"""What `SQLiteMemoryStore` and episodes in a file stand on."""
