"""Claude's memory tool over a handle: its files are memories, with versions and undo.

`OrbiterMemoryTool` blocks and `AsyncOrbiterMemoryTool` awaits. A file is an item of the type `file`
whose `metadata.extra` has the `path`, so it is recalled, shown in the dashboard and erased like any
other. What the tool answers is, to the letter, what Claude was trained with.
"""

from collections.abc import Callable

from orbiter.memory._lazy import missing_extra
from orbiter.memory.agent import ScopedMemory
from orbiter.memory.errors import ItemNotFoundError, QueryError, VersionConflict
from orbiter.memory.integrations._calls import AnyHandle, Calls
from orbiter.memory.model.items import MemoryItem, MemoryMetadata

try:
    from anthropic.lib.tools import (
        BetaAbstractMemoryTool,
        BetaAsyncAbstractMemoryTool,
        ToolError,
    )
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )
except ModuleNotFoundError as exc:
    raise missing_extra("`OrbiterMemoryTool` needs Anthropic's SDK", "anthropic") from exc

__all__ = ["AsyncOrbiterMemoryTool", "OrbiterMemoryTool"]

_ROOT = "/memories"
_CLAIMS = ("anthropic-memory", "paths")
_SOURCE = "agent:claude"
_TYPE = "file"
_WHOLE = "anthropic-memory"
"""The key in `native` of a file that is longer than the text of an item."""
_LARGEST_PART = 2**20 - 4
_MAX_LINES = 999_999
_MAX_PLACES = 100
"""How many lines an error names at most: more would fill the context of the model."""
_PAGE = 100


class OrbiterMemoryTool(BetaAbstractMemoryTool):
    """The memory tool over a handle, for `Anthropic`, the client that blocks."""

    def __init__(
        self,
        handle: AnyHandle,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._calls = Calls(handle, "OrbiterMemoryTool", way="use `AsyncOrbiterMemoryTool`")
        self._files = _Files(self._calls)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return a file with line numbers, or what is in a directory."""
        return self._calls.run(self._files.view(command))

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Store a new file."""
        return self._calls.run(self._files.create(command))

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that stands once in a file."""
        return self._calls.run(self._files.str_replace(command))

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text behind a line of a file."""
        return self._calls.run(self._files.insert(command))

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Forget a file, or all files of a directory; `restore` brings them back."""
        return self._calls.run(self._files.delete(command))

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file, or all files of a directory, another path."""
        return self._calls.run(self._files.rename(command))

    def clear_all_memory(self) -> str:
        """Forget all files; other memories stay."""
        return self._calls.run(self._files.clear())


class AsyncOrbiterMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool over a handle, for `AsyncAnthropic`."""

    def __init__(
        self,
        handle: AnyHandle,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._calls = Calls(handle, "AsyncOrbiterMemoryTool")
        self._files = _Files(self._calls)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return a file with line numbers, or what is in a directory."""
        return await self._calls.wait(self._files.view(command))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Store a new file."""
        return await self._calls.wait(self._files.create(command))

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that stands once in a file."""
        return await self._calls.wait(self._files.str_replace(command))

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text behind a line of a file."""
        return await self._calls.wait(self._files.insert(command))

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Forget a file, or all files of a directory; `restore` brings them back."""
        return await self._calls.wait(self._files.delete(command))

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file, or all files of a directory, another path."""
        return await self._calls.wait(self._files.rename(command))

    async def clear_all_memory(self) -> str:
        """Forget all files; other memories stay."""
        return await self._calls.wait(self._files.clear())


class _Files:
    """The commands; an error that a model can act on is a `ToolError`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def _handle(self) -> ScopedMemory:
        return self._calls.handle

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        path = _checked(command.path)
        file = await self._find(path)
        if file is None:
            return await self._view_directory(path, command.path)
        lines = _text(file).split("\n")
        if len(lines) > _MAX_LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        first, last = 0, len(lines)
        if command.view_range and len(command.view_range) == 2:
            first = max(1, command.view_range[0]) - 1
            last = last if command.view_range[1] == -1 else command.view_range[1]
        numbered = _numbered(lines, first, last)
        return f"Here's the content of {command.path} with line numbers:\n{numbered}"

    async def _view_directory(self, path: str, written: str) -> str:
        files = await self._below(path)
        if not files and path != _ROOT:
            raise ToolError(f"The path {written} does not exist. Please provide a valid path.")
        sizes: dict[tuple[str, ...], int] = {}
        folders: set[tuple[str, ...]] = set()
        for file in files:
            parts = tuple(_path(file).removeprefix(f"{path}/").split("/"))
            size = len(_text(file).encode())
            if any(part.startswith(".") for part in parts[:2]):
                continue
            visible = parts[:2]
            sizes[visible] = sizes.get(visible, 0) + size
            if len(parts) > 1:
                sizes[parts[:1]] = sizes.get(parts[:1], 0) + size
            folders |= {parts[:depth] for depth in range(1, min(len(parts), 3))}
        whole = sum(len(_text(file).encode()) for file in files)
        lines = [f"{_size(whole)}\t{written}"]
        for parts in sorted(sizes):
            end = "/" if parts in folders else ""
            lines.append(f"{_size(sizes[parts])}\t{written}/{'/'.join(parts)}{end}")
        head = (
            f"Here're the files and directories up to 2 levels deep in {written}, "
            "excluding hidden items:"
        )
        return "\n".join([head, *lines])

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        path = _checked(command.path)
        taken = ToolError(f"File {command.path} already exists")
        # Before looking: whoever makes the file meanwhile changes the version.
        version = await self._claimed(path)
        if path == _ROOT or await self._exists(path):
            raise taken
        await self._check_parents(path)
        item = _item(path, command.file_text)
        await self._store(item)
        if not await self._claim(path, item.id, version):
            await self._handle.forget(item.id)
            raise taken
        return f"File created successfully at: {command.path}"

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        old = command.old_str

        def edit(text: str) -> tuple[str, str]:
            count = text.count(old)
            if count == 0:
                raise ToolError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim in "
                    f"{command.path}."
                )
            if count > 1:
                lines = ", ".join(_lines(text, old))
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in "
                    f"lines: {lines}. Please ensure it is unique"
                )
            line = text.count("\n", 0, text.find(old))
            new = text.replace(old, command.new_str)
            snippet = _numbered(new.split("\n"), max(0, line - 2), line + 3)
            return new, (
                "The memory file has been edited. Here is the snippet showing the change (with "
                f"line numbers):\n{snippet}"
            )

        return await self._edit(command.path, edit)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        def edit(text: str) -> tuple[str, str]:
            lines = text.removesuffix("\n").split("\n") if text else []
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}. It should be within "
                    f"the range [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            new = "\n".join(lines)
            new = new if new.endswith("\n") else f"{new}\n"
            return new, f"The file {command.path} has been edited."

        return await self._edit(command.path, edit)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        path = _checked(command.path)
        if path == _ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        if not await self._forget(await self._at_and_below(path)):
            raise ToolError(f"The path {command.path} does not exist")
        return f"Successfully deleted {command.path}"

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        old, new = _checked(command.old_path), _checked(command.new_path)
        if old == _ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        taken = ToolError(f"The destination {command.new_path} already exists")
        version = await self._claimed(new)
        if new == _ROOT or await self._exists(new):
            raise taken
        files = await self._at_and_below(old)
        if not files or new.startswith(f"{old}/"):
            raise ToolError(f"The path {command.old_path} does not exist")
        await self._check_parents(new)
        if not await self._claim(new, files[0].id, version):
            raise taken
        for file in files:
            await self._change(file.id, extra={"path": new + _path(file).removeprefix(old)})
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    async def clear(self) -> str:
        await self._forget(await self._below(_ROOT))
        return "All memory cleared"

    # Items

    async def _find(self, path: str) -> MemoryItem | None:
        files = await self._handle.list(memory_type=_TYPE, where={"path": path}, limit=1)
        return next(iter(files), None)

    async def _below(self, path: str) -> list[MemoryItem]:
        """Return the files in a directory, and in those below it, by path."""
        files: dict[str, MemoryItem] = {}
        cursor = None
        while True:
            page = await self._handle.list(
                memory_type=_TYPE, where={"path": {"$exists": True}}, limit=_PAGE, cursor=cursor
            )
            for item in page:
                if _path(item).startswith(f"{path}/"):
                    files.setdefault(_path(item), item)  # an older one was restored
            if page.next is None:
                return [files[name] for name in sorted(files)]
            cursor = page.next

    async def _at_and_below(self, path: str) -> list[MemoryItem]:
        file = await self._find(path)
        return await self._below(path) if file is None else [file]

    async def _exists(self, path: str) -> bool:
        return bool(await self._at_and_below(path))

    async def _check_parents(self, path: str) -> None:
        """Raise `ToolError` if *path* is below a file."""
        parts = path.split("/")
        parents = ["/".join(parts[:count]) for count in range(3, len(parts))]
        where = {"path": {"$in": parents}}
        files = await self._handle.list(memory_type=_TYPE, where=where, limit=1) if parents else ()
        for file in files:
            raise ToolError(f"The path {_path(file)} is a file, not a directory.")

    async def _forget(self, files: list[MemoryItem]) -> bool:
        is_any = False
        for file in files:
            is_any = bool(await self._handle.forget(file.id)) or is_any
        return is_any

    async def _store(self, item: MemoryItem) -> None:
        try:
            await self._handle.remember(item)
        except ValueError as exc:
            raise ToolError(f"The file cannot be stored: {exc}") from exc

    async def _edit(self, written: str, edit: Callable[[str], tuple[str, str]]) -> str:
        """Change the text of a file, again if somebody else changed it meanwhile."""
        path = _checked(written)
        while True:
            file = await self._find(path)
            if file is None:
                if path == _ROOT or await self._below(path):
                    raise ToolError(f"The path {written} is not a file.")
                raise ToolError(f"The path {written} does not exist. Please provide a valid path.")
            text, answer = edit(_text(file))
            if _WHOLE in file.native or len(text.encode(errors="replace")) > _LARGEST_PART:
                raise ToolError(f"The file {written} is too large to be edited; split it.")
            try:
                await self._change(file.id, text, version=file.version)
            except (VersionConflict, ItemNotFoundError):
                continue
            return answer

    async def _change(
        self,
        item_id: str,
        text: str | None = None,
        *,
        extra: dict[str, object] | None = None,
        version: int | None = None,
    ) -> None:
        source = None if text is None else _SOURCE
        try:
            await self._handle.update(
                item_id, text, extra=extra, source=source, expected_version=version
            )
        except (QueryError, UnicodeError) as exc:
            raise ToolError(f"The file cannot be stored: {exc}") from exc

    # Of two that make a file of one path at once, one does.

    async def _claimed(self, path: str) -> int:
        entry = await self._handle.kv.get(_CLAIMS, path)
        return 0 if entry is None else entry.version

    async def _claim(self, path: str, item_id: str, version: int) -> bool:
        try:
            await self._handle.kv.put(_CLAIMS, path, item_id.encode(), expected_version=version)
        except VersionConflict:
            return False
        return True


def _checked(written: str) -> str:
    """Return a path without dots and double slashes; `ToolError` if it is not in `/memories`."""
    if written != _ROOT and not written.startswith(f"{_ROOT}/"):
        raise ToolError(f"Path must start with /memories, got: {written}")
    parts: list[str] = []
    for part in written.removeprefix(_ROOT).split("/"):
        if part == "..":
            if not parts:
                raise ToolError(f"Path {written} would escape /memories directory")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    path = "/".join([_ROOT, *parts])
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(f"Path {written[:80]!a} is not valid Unicode; use another") from exc
    if len(path.encode()) > 1_000 or "\0" in path:
        raise ToolError(f"Path {written[:80]}… is too long, or has a NUL; use a short one")
    return path


def _item(path: str, text: str) -> MemoryItem:
    part, native = text, {}
    if len(text.encode(errors="replace")) > _LARGEST_PART:
        part = text.encode(errors="replace")[:_LARGEST_PART].decode(errors="ignore")
        native = {_WHOLE: text}
    metadata = MemoryMetadata(extra={"path": path, "source": _SOURCE})
    try:
        return MemoryItem(content=part, memory_type=_TYPE, metadata=metadata, native=native)
    except ValueError as exc:
        raise ToolError(f"The file cannot be stored: {exc}") from exc


def _text(file: MemoryItem) -> str:
    return str(file.native.get(_WHOLE, file.content))


def _path(file: MemoryItem) -> str:
    return str(file.metadata.extra["path"])


def _lines(text: str, part: str) -> list[str]:
    """Return the lines where *part* begins in *text*, also where it overlaps itself."""
    lines: list[str] = []
    line, before, place = 1, 0, text.find(part)
    while place != -1:
        if len(lines) == _MAX_PLACES:
            return [*lines, "…"]
        line += text.count("\n", before, place)
        lines.append(str(line))
        before, place = place, text.find(part, place + 1)
    return lines


def _numbered(lines: list[str], first: int, last: int) -> str:
    numbered = enumerate(lines[first:last], start=first + 1)
    return "\n".join(f"{number:>6}\t{line}" for number, line in numbered)


def _size(count: int) -> str:
    if count == 0:
        return "0B"
    unit = min((count.bit_length() - 1) // 10, 3)
    size = count / 1024**unit
    return f"{int(size)}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"
