"""Bugs for a copy of `JournalStore` that show when it is opened, closed or killed."""

from tests.kit.bugs import Bug

_OPEN_ONCE = "        if self._file is not None:\n            return\n        self._items = {}\n"

LIFECYCLE_BUGS = {
    "acknowledges before it writes": Bug(
        "kill_9", "        file.flush()\n        os.fsync(file.fileno())\n", ""
    ),
    "opening twice starts anew": Bug(
        "init_and_close_may_be_repeated",
        _OPEN_ONCE,
        "        self._items = {}\n        self._path = Path(str(self._path) + 'x')\n",
    ),
    "a closed store answers": Bug(
        "a_closed_store_says_so",
        "    ) -> list[MemoryItem]:\n        self._opened()\n",
        "    ) -> list[MemoryItem]:\n",
    ),
    "a closed store drops a batch": Bug(
        "a_closed_store_takes_no_batch",
        "        self._opened()\n        kept: dict[str, MemoryItem] = {}\n",
        "        if self._file is None:\n            return\n"
        "        kept: dict[str, MemoryItem] = {}\n",
        (("        await self.add_many", "        self._opened()\n        await self.add_many"),),
    ),
    "closing is for good": Bug(
        "a_closed_store_can_be_opened_again",
        "        if self._file is not None:\n            return\n",
        "        if self._file is not None or self.__dict__.get('closed'):\n            return\n",
        (
            (
                "            self._file.close()\n",
                "            self._file.close(); self.closed = True\n",
            ),
        ),
    ),
    "what is opened again is empty": Bug(
        "a_store_opened_again_has_its_data",
        "        if self._path.exists():\n",
        "        if self._path.exists() and not self.__dict__.get('closed'):\n",
        (
            (
                "            self._file.close()\n",
                "            self._file.close(); self.closed = True\n",
            ),
        ),
    ),
    "those who open at once open twice": Bug(
        "callers_who_open_at_once",
        _OPEN_ONCE,
        f"{_OPEN_ONCE}        await __import__('asyncio').sleep(0)\n",
    ),
    "those who open at once do not wait": Bug(
        "callers_who_open_at_once",
        _OPEN_ONCE,
        "        if self._file is not None or self.__dict__.get('opening'):\n"
        "            return\n"
        "        self.opening = True\n"
        "        await __import__('asyncio').sleep(0)\n"
        "        self.opening = False\n"
        "        self._items = {}\n",
    ),
    "what was opened is not closed": Bug(
        "callers_who_open_at_once",
        "            self._file.close()\n",
        "            self.__dict__.setdefault('files', []).append(self._file)\n",
    ),
    "a cleared item is back after opening": Bug(
        "a_reopened_store_has_everything",
        'self._write({"clear": gone})',
        "[self._items.pop(i) for i in gone]",
    ),
    "versions are not kept": Bug(
        "a_reopened_store_has_everything",
        "                self._apply(json.loads(line))\n",
        "                self._apply(json.loads(line, object_hook=lambda o: {**o, **({'version': 1}"
        " if 'version' in o else {})}))\n",
    ),
    "reopening changes the order of ties": Bug(
        "a_reopened_store_has_every_field_and_the_same_order",
        "        self._file = self._path.open",
        "        self._items = dict(reversed(self._items.items()))\n"
        "        self._file = self._path.open",
    ),
    "reopening forgets whether a tool failed": Bug(
        "a_reopened_store_has_every_field_and_the_same_order",
        "                self._apply(json.loads(line))\n",
        "                self._apply(json.loads(line, object_hook=lambda o:"
        " {k: v for k, v in o.items() if k != 'is_error'}))\n",
    ),
}
