"""`python -m orbiter.memory.cli` is `orbiter-memory`."""

from orbiter.memory.cli import main

if __name__ == "__main__":
    main()
