"""What becomes of blocking memories when a program ends, forks or is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.timing import HANG

pytestmark = pytest.mark.slow

PRELUDE = """
import asyncio, os, signal, sys, threading, time
from orbiter.memory.sync import AgentMemory
memory = AgentMemory("agent.db", embeddings=None)
alice = memory.scope(user_id="alice")
alice.remember("before")
"""


def _program(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *code* with every warning shown."""
    command = [sys.executable, "-W", "always", "-c", PRELUDE + code]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=HANG, check=False
    )


def test_a_program_that_closes_nothing_ends_at_once_and_leaves_all_closed(tmp_path: Path) -> None:
    done = _program(
        """
class Slow:
    async def summarize(self, prompt):
        await asyncio.sleep(1000)
from orbiter.memory import SummaryConfig
other = AgentMemory("other.db", embeddings=None, episodic="memory://", summarizer=Slow(),
                    summaries=SummaryConfig(message_threshold=2, keep_recent=1))
chat = other.scope(user_id="a").chat("c")
chat.add(["one", "two", "three", "four"])           # a summary is under way
stream = alice.events()
threading.Thread(target=lambda: list(stream), daemon=True).start()     # and a thread waits
activity = other.scope(user_id="a").activity.stream()
threading.Thread(target=lambda: list(activity), daemon=True).start()
late = threading.Thread(target=lambda: (time.sleep(0.2), alice.remember("late")))
late.start()                                         # this one works while the program ends
""",
        tmp_path,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # Whoever closes a SQLite file last takes its journal away.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.db", "other.db"]
    again = _program("print(len(alice.list()))\nmemory.close()", tmp_path)
    assert again.stdout == "3\n"  # and with them what was late


def test_interrupting_a_call_cancels_its_work(tmp_path: Path) -> None:
    done = _program(
        """
class Slow:
    async def summarize(self, prompt):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            print("cancelled")
            raise
with AgentMemory("other.db", embeddings=None, summarizer=Slow()) as other:
    chat = other.scope(user_id="a").chat("c")
    chat.add([f"message {number}" for number in range(8)])
    try:
        chat.summarize()
    except KeyboardInterrupt:
        print("interrupted")
    print(len(chat.items()), len(alice.list()))
memory.close()
""",
        tmp_path,
    )

    assert done.stdout == "cancelled\ninterrupted\n8 1\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_a_loop_of_its_own(tmp_path: Path) -> None:
    done = _program(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of any fork with threads
from orbiter.memory.errors import UnsupportedError
fleeting = AgentMemory("memory://", embeddings=None)
fleeting.scope(user_id="a").remember("of the parent")
branch = alice.chat("c").fork(alice.chat("c").add("hello")[0])
stream = alice.events()
for number in range(2):
    if not (pid := os.fork()):
        try:
            alice.remember(f"of child {number}")
            branch.add("more")
            try:
                fleeting.scope(user_id="a")
            except UnsupportedError:
                try:
                    next(stream)
                except UnsupportedError:
                    core = memory._other()._core     # one store for all that the child uses
                    code = 0 if branch._other()._chats.core is core is alice._other()._core else 2
            memory.close()
        except BaseException:
            code = 1
            raise
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
alice.remember("of the parent")
kinds = [next(stream).kind]
print(sorted(item.content for item in alice.list()), kinds, len(branch.items()), flush=True)
if not os.fork():
    alice.remember("of a child that ends like any program")
    sys.exit(0)
os.wait()
print(len(fleeting.scope(user_id="a").list()), len(alice.list()))
""",
        tmp_path,
    )

    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert "'of child 0', 'of child 1', 'of the parent'" in first
    assert first.endswith("['remembered'] 3")
    assert second.startswith("1 ")


def test_a_fork_waits_until_the_loop_holds_no_lock(tmp_path: Path) -> None:
    done = _program(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
lock, inside = threading.Lock(), threading.Event()
def count_tokens(text):
    with lock:              # as an import would
        inside.set()
        time.sleep(0.2)
    return 1
counting = AgentMemory("other.db", embeddings=None, count_tokens=count_tokens)
chat = counting.scope(user_id="a").chat("c")
chat.add("hello")
other = threading.Thread(target=chat.items, kwargs={"budget": 1000})
other.start()
inside.wait()
if not (pid := os.fork()):
    signal.alarm(10)        # ends a child that waits for ever
    os._exit(len(chat.items(budget=1000)))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
other.join()
""",
        tmp_path,
    )

    assert (done.stdout, done.stderr) == ("1\n", "")


def test_after_the_end_a_call_is_refused_and_not_a_hang(tmp_path: Path) -> None:
    done = _program(
        """
from orbiter.memory.sync import _background_loop as _loop
_loop._end()
try:
    alice.list()
except RuntimeError as exc:
    print(exc)
""",
        tmp_path,
    )

    assert done.stdout == "the program is ending, and its memories are closed\n"
    assert (done.returncode, done.stderr) == (0, "")
