"""What `RedisMemoryStore` and episodes in Redis stand on."""
