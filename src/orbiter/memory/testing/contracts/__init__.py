"""The rules of a store as tests, a module for each; `StoreConformance` inherits them all."""
