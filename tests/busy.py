"""Run a command beside four busy loops: `python tests/busy.py make test`.

The loops end with the command, and by themselves if this process is killed.
"""

import os
import subprocess
import sys

LOOPS = 4

# Its parent gone, a process is given another: then the loop has nothing more to disturb.
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"


def main(command: list[str]) -> int:
    """Return the exit code of *command*."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(LOOPS)]
    try:
        code = subprocess.run(command, check=False).returncode
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"beside {LOOPS} busy loops: exit {code}, load {load}", flush=True)
        return code
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
