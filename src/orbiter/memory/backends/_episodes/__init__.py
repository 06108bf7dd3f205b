"""The places that keep an agent's episodes."""
