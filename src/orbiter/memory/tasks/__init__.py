"""Long work that lets an event loop go on: threads, slices, progress, and which loop is ours."""
