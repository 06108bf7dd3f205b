"""What a message holds besides its tool calls, in no provider's form: texts, pictures, files.

Each is read from the form in which it came and written in any other. Where a provider has no form
for a picture or a file, a word in brackets stands for it: `[image]`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from mimetypes import guess_type
from typing import Any

from orbiter.memory.messages import _anthropic, _gemini, _openai_chat, _openai_responses
from orbiter.memory.messages._common import (
    BEDROCK,
    IMAGE,
    joined_text,
    kept,
    objects_in,
    text_block,
    type_of,
    with_text,
)
from orbiter.memory.messages.codec import Codec, Format, Message
from orbiter.memory.model.copying import copy_item
from orbiter.memory.model.items import MemoryItem, ToolMemory, result_id, role_of

__all__ = ["Part", "data_of", "in_words", "parts_of", "result_parts", "says", "translated"]

_DATA = re.compile(r"data:(?P<media>[\w.+-]+/[\w.+-]+);base64,(?P<data>.+)", re.DOTALL)
_CODECS: Mapping[Format, Codec] = {
    "anthropic": _anthropic,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    "openai": _openai_chat,
}
"""Whose form of a message says most, the first that an item kept; else the last."""
_OF_TOOLS = ("tool_use", "tool_result", "tool_call", "function_call", "function_call_output")
"""Blocks that are never taken over: calls and results are written from the items."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a message holds: a text, a picture, a file, a thought."""

    text: str = ""
    kind: str = "text"
    media: str = ""
    data: str = ""
    """A picture or a file in base64, a thought's signature, or a hidden thought."""
    name: str = ""
    """What a file is called."""
    block: Message | None = None
    """The block of a file, or one that only one provider knows."""
    kept: list[Message] | None = None
    """The blocks of Bedrock that it was, if they could not be written again without."""


def parts_of(item: MemoryItem) -> list[Part]:
    """Return what a message holds beside its calls, as its codec writes it."""
    if role_of(item) == "system":
        return [Part(item.content)] if item.content.strip() else []
    format: Format = next((name for name in _CODECS if name in item.native), "openai")
    written = _CODECS[format].encode([[item]])
    parts = [part for message in written for part in _READERS[format](message)]
    is_model = role_of(item) == "ai"
    if is_model and format == "openai":
        parts = _with_speech(parts, item.content)
    return [
        part
        for part in parts
        if (part.kind != "text" or part.text.strip())
        and (is_model or not part.kind.endswith("thought"))  # only a model thinks
    ]


def _with_speech(parts: list[Part], text: str) -> list[Part]:
    """Return the parts of an answer of OpenAI that say *text*: a refusal has keys of its own."""
    if "\n".join(part.text for part in parts if part.kind == "text") == text:
        return parts
    return [*(part for part in parts if part.kind != "text"), Part(text)]


def data_of(base64_text: str) -> bytes | None:
    """Return what base64 says; `None` if it is none."""
    try:
        return base64.b64decode(base64_text, validate=True)
    except (binascii.Error, ValueError):
        return None


# Reading


def _of_openai(message: Message) -> Iterable[Part]:
    if isinstance(thought := message.get("reasoning_content"), str) and thought:
        yield Part(thought, "thought")
    yield from _of_blocks(message.get("content"))


def _of_anthropic(message: Message) -> Iterable[Part]:
    yield from _of_blocks(message.get("content"))


def _of_responses(entry: Message) -> Iterable[Part]:
    result = entry.get("result")
    if type_of(entry) == "reasoning":
        yield Part(kind="block", block=entry)
    elif type_of(entry) == "image_generation_call" and isinstance(result, str):
        yield Part(kind="image", media=f"image/{entry.get('output_format') or 'png'}", data=result)
    elif type_of(entry) in ("", "message"):
        yield from _of_blocks(entry.get("content"))


def _of_gemini(content: Message) -> Iterable[Part]:
    for part in objects_in(content.get("parts")):
        held = part.get("inlineData", part.get("inline_data"))
        if isinstance(part.get("text"), str):
            yield Part(part["text"], "thought" if part.get("thought") else "text")
        elif isinstance(held, Mapping):
            media = str(held.get("mimeType", held.get("mime_type")))
            kind = "image" if media.startswith("image/") else "file"
            name = str(held.get("displayName", held.get("display_name", "")))
            yield Part(kind=kind, media=media, data=str(held.get("data")), name=name)
        elif isinstance(there := part.get("fileData", part.get("file_data")), Mapping):
            media = str(there.get("mimeType", there.get("mime_type", "")))
            url = str(there.get("fileUri", there.get("file_uri", "")))
            yield Part(url, "url" if media.startswith("image/") else "file url", media=media)


def _of_blocks(content: object) -> Iterable[Part]:
    if isinstance(content, str):
        yield Part(content)
    for block in objects_in(content):
        if type_of(block) not in _OF_TOOLS:
            kept_blocks = objects_in(block.pop(BEDROCK, None))
            yield replace(_of_block(block), kept=kept_blocks or None)


def _of_block(block: Message) -> Part:
    """Return a block of OpenAI's or Anthropic's message."""
    kind = type_of(block)
    if kind in ("text", "input_text", "output_text", "refusal"):
        return Part(str(block.get("text", block.get("refusal", ""))))
    if kind == "thinking":
        return Part(str(block.get("thinking", "")), "thought", data=str(block.get("signature", "")))
    if kind == "redacted_thinking":
        return Part(kind="hidden thought", data=str(block.get("data", "")))
    read = (_of_picture, _of_file, _of_sound)
    return next((part for each in read if (part := each(block))), Part(kind="block", block=block))


def _of_file(block: Message) -> Part | None:
    """Return a document; `None` for one that only its provider has, under an id."""
    kind, source, held = type_of(block), block.get("source"), block.get("file")
    if kind == "search_result":
        title, said = str(block.get("title") or ""), joined_text(objects_in(block.get("content")))
        return Part(str(source or ""), "file", _TEXT, _packed(said), title, block)
    there = ""
    if kind in ("document", "video", "audio") and isinstance(source, Mapping):
        name, url = str(block.get("title") or ""), source.get("url")
        there = str(source.get("media_type") or "")
        media, data = str(source.get("media_type") or _TEXT), source.get("data")
        if source.get("type") == "text":
            data = _packed(str(data))
        elif source.get("type") == "content":
            inside = source.get("content")
            data = _packed(inside if isinstance(inside, str) else joined_text(objects_in(inside)))
        is_held = source.get("type") in ("text", "base64", "content")
    elif kind in ("file", "input_file"):
        holder = held if isinstance(held, Mapping) else block
        name, url = str(holder.get("filename") or ""), holder.get("file_url")
        whole = _DATA.fullmatch(str(holder.get("file_data")))
        media, data = (whole["media"], whole["data"]) if whole else ("", "")
        is_held = whole is not None
    else:
        return None
    if is_held:
        return Part(kind="file", media=media, data=str(data), name=name, block=block)
    return Part(str(url), "file url", there, name=name, block=block) if url else None


def _packed(text: str) -> str:
    return base64.b64encode(text.encode(errors="replace")).decode()


def _of_picture(block: Message) -> Part | None:
    url, source = block.get("image_url"), block.get("source")
    if type_of(block) in ("image_url", "input_image", "computer_screenshot") and url:
        address = str(url.get("url") if isinstance(url, Mapping) else url)
        if whole := _DATA.fullmatch(address):
            return Part(kind="image", media=whole["media"], data=whole["data"])
        return Part(address, "url")
    if type_of(block) != "image" or not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64":
        media, data = source.get("media_type"), source.get("data")
        return Part(kind="image", media=str(media), data=str(data))
    return Part(str(source["url"]), "url", block=block) if source.get("url") else None


def _of_sound(block: Message) -> Part | None:
    held = block.get("input_audio")
    if type_of(block) != "input_audio" or not isinstance(held, Mapping):
        return None
    media = next((media for media, form in _SOUNDS.items() if form == held.get("format")), "")
    return (
        Part(kind="file", media=media, data=str(held.get("data")), block=block) if media else None
    )


_READERS: Mapping[Format, Callable[[Message], Iterable[Part]]] = {
    "openai": _of_openai,
    "openai-responses": _of_responses,
    "anthropic": _of_anthropic,
    "gemini": _of_gemini,
}

# Writing

_SOUNDS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The pictures that OpenAI and Anthropic take."""
_PDF, _TEXT = "application/pdf", "text/plain"
_GEMINI = re.compile(r"image/(?:png|jpeg|webp|hei[cf])|(?:audio|video|text)/.+|application/pdf")
"""What Gemini takes."""
_PLAYED = ("audio/", "video/")
_MEDIA = ("image", "url", "file", "file url")
_FILE_BLOCKS = frozenset(
    ("file", "input_file", "document", "container_upload", "image", "input_image", "input_audio")
)
"""Blocks that may name a file which only their provider has."""


def translated(item: MemoryItem, format: Format) -> MemoryItem:
    """Return *item* as if its message had come in *format*, with its pictures and files.

    Only what people show and tools return has any that another provider takes; for those that a
    model made stand words. An item that has none, or came in *format*, is returned as it is.
    """
    role = role_of(item)
    if not item.native or role not in ("human", "ai", "tool"):
        return item
    if format in item.native:
        return _without_bedrock(item) if format == "anthropic" else item
    if isinstance(item, ToolMemory):
        return _translated_result(item, format)
    parts = parts_of(item)
    if not any(part.kind in _MEDIA or _is_file(part) for part in parts):
        return item
    if role == "ai":
        said = [part.text for part in map(in_words, parts) if part.kind == "text"]
        return copy_item(item).model_copy(update={"content": "\n".join(said)})
    written = [block for part in parts if (block := _written(part, format)) is not None]
    native: Any = written
    if format == "openai":
        native = {"content": written}
    elif format == "openai-responses":
        native = [{"type": "message", "role": "user", "content": written}]
    return _with_native(item, format, native, written)


def _without_bedrock(item: MemoryItem) -> MemoryItem:
    """Return an item of Anthropic's without what only Bedrock has; words stand for its files."""
    native = kept(item, "anthropic", object)
    blocks = objects_in(native.get("content") if isinstance(native, dict) else native)
    legal = [_legal_block(block, is_model=role_of(item) == "ai") for block in blocks]
    if legal == blocks and not (isinstance(native, dict) and BEDROCK in native):
        return item
    copy = copy_item(item)
    if joined_text(blocks) == item.content:
        copy.content = joined_text(legal)
    fresh: object = legal
    if isinstance(native, dict):
        is_of_bedrock = native.pop(BEDROCK, None) is not None
        if is_of_bedrock and [*map(type_of, legal)] == ["text"]:  # the item says it all
            legal = []
        fresh = {key: value for key, value in native.items() if key != "content"}
        fresh |= {"content": legal} if legal else {}
    copy.native = {**item.native, "anthropic": fresh}
    return copy


def _legal_block(block: Message, *, is_model: bool) -> Message:
    plain = {key: value for key, value in block.items() if key != BEDROCK}
    kind, source = type_of(block), block.get("source")
    if kind not in ("image", "document", "video", "audio") or not isinstance(source, Mapping):
        return plain
    part = _of_block(plain)
    is_text = kind == "document" and source.get("type") in ("text", "content")
    is_file = is_text or _is_picture(part) or (kind == "document" and _is_pdf(part))
    is_there = kind in ("image", "document") and (_is_web(part) or part.kind == "block")
    if (is_file or is_there) and not (is_model and kind == "image"):
        return plain
    return {"type": "text", "text": in_words(part).text}


def _translated_result(item: ToolMemory, format: Format) -> MemoryItem:
    """Return a result with its pictures where a result may have some, else with words for them."""
    parts = result_parts(item)
    if all(part.kind == "text" for part in parts):
        return item
    if format in ("openai", "gemini"):  # their results are texts
        said = "\n".join(in_words(part).text for part in parts)
        return copy_item(item).model_copy(update={"native": {}, "content": said})
    written = [block for part in parts if (block := _written(part, format)) is not None]
    native: Any = {"content": written}
    if format == "openai-responses":
        id = result_id(item)
        native = [{"type": "function_call_output", "call_id": id, "output": written}]
    return _with_native(item, format, native, written)


def result_parts(item: ToolMemory) -> list[Part]:
    """Return the texts, pictures and files of a result; of a text that was changed, the new one."""
    if "anthropic" in item.native:
        blocks = objects_in(kept(item, "anthropic", dict).get("content"))
    elif "openai-responses" in item.native:
        entries = objects_in(kept(item, "openai-responses", list)[:1])
        output = entries[0].get("output") if entries else None
        blocks = objects_in([output] if isinstance(output, Mapping) else output)
    else:
        response = _gemini.response_in(kept(item, "gemini", dict)) or {}
        said = [Part(item.content)] if item.content else []
        return [*said, *_of_gemini({"parts": response.get("parts")})]
    if not says(item, blocks):
        blocks = with_text(blocks, item.content, {"type": "text", "text": item.content})
    return [part for part in _of_blocks(blocks) if part.kind in ("text", *_MEDIA)]


def says(item: MemoryItem, blocks: list[Message]) -> bool:
    """Tell whether a result still says what *blocks* do: its text may have been changed since."""
    # A screenshot has no text; the item has a word for it.
    return (joined_text(blocks) or IMAGE) == (item.content or IMAGE)


def _with_native(
    item: MemoryItem, format: Format, native: object, blocks: list[Message]
) -> MemoryItem:
    copy = copy_item(item)
    copy.native = {format: native}
    copy.content = joined_text(blocks, _gemini.text_part if format == "gemini" else text_block)
    return copy


def _is_file(part: Part) -> bool:
    return part.kind == "block" and type_of(part.block or {}) in _FILE_BLOCKS


def _written(part: Part, format: Format) -> Message | None:
    """Return a part in *format*; `None` for what is no matter of another provider."""
    if part.kind in _MEDIA:
        made = _WRITERS[format](part)
        if made is not None:
            return made
    part = in_words(part)
    if part.kind != "text":
        return None
    if format == "gemini":
        return {"text": part.text}
    kind = "input_text" if format == "openai-responses" else "text"
    return {"type": kind, "text": part.text}


def in_words(part: Part) -> Part:
    """Return a text for a picture or a file; of a file of text, also what it says."""
    if _is_file(part):
        return Part(IMAGE if "image" in type_of(part.block or {}) else "[file]")
    if part.kind not in _MEDIA:
        return part
    is_text = part.kind == "file" and part.media.startswith("text/")
    held = data_of(part.data) if is_text else None
    stand_in = _stand_in(part)
    return Part(f"{stand_in}\n{held.decode(errors='replace')}" if held else stand_in)


def _stand_in(part: Part) -> str:
    kind = "image" if part.kind in ("image", "url") else part.media.partition("/")[0]
    kind = kind if kind in ("image", "audio", "video") else "file"
    about = ", ".join(filter(None, (part.name, part.text)))
    return f"[{kind}: {about}]" if about else f"[{kind}]"


def _address(part: Part) -> str:
    return part.text or f"data:{part.media};base64,{part.data}"


def _is_web(part: Part) -> bool:
    return part.text.startswith(("https://", "http://"))


def _is_picture(part: Part) -> bool:
    return part.media in _PICTURES if part.kind == "image" else part.kind == "url" and _is_web(part)


def _is_pdf(part: Part) -> bool:
    return part.kind == "file" and part.media == _PDF


def _for_openai(part: Part) -> Message | None:
    if _is_picture(part):
        return {"type": "image_url", "image_url": {"url": _address(part)}}
    if _is_pdf(part):
        return {"type": "file", "file": _openai_file(part)}
    if part.kind == "file" and part.media in _SOUNDS:
        held = {"data": part.data, "format": _SOUNDS[part.media]}
        return {"type": "input_audio", "input_audio": held}
    return None


def _for_responses(part: Part) -> Message | None:
    if _is_picture(part):
        return {"type": "input_image", "detail": "auto", "image_url": _address(part)}
    if _is_pdf(part):
        return {"type": "input_file", **_openai_file(part)}
    if part.kind == "file url" and _is_web(part) and not _media_of(part).startswith(_PLAYED):
        name = {"filename": part.name} if part.name else {}
        return {"type": "input_file", **name, "file_url": part.text}
    return None


def _openai_file(part: Part) -> Message:
    return {"filename": part.name or "file.pdf", "file_data": _address(part)}


def _for_anthropic(part: Part) -> Message | None:
    if _is_picture(part):
        source = {"type": "url", "url": part.text}
        if part.kind == "image":
            source = {"type": "base64", "media_type": part.media, "data": part.data}
        return {"type": "image", "source": source}
    title = {"title": part.name} if part.name else {}
    if _is_pdf(part):
        source = {"type": "base64", "media_type": _PDF, "data": part.data}
        return {"type": "document", **title, "source": source}
    if part.kind == "file url" and _is_web(part) and _media_of(part) == _PDF:
        return {"type": "document", **title, "source": {"type": "url", "url": part.text}}
    return None


def _for_gemini(part: Part) -> Message | None:
    media = _media_of(part)
    if not _GEMINI.fullmatch(media):
        return None
    if part.kind in ("image", "file"):
        name = {"displayName": part.name} if part.name else {}
        return {"inlineData": {"mimeType": media, "data": part.data, **name}}
    if _is_web(part):
        return {"fileData": {"mimeType": media, "fileUri": part.text}}
    return None


def _media_of(part: Part) -> str:
    """Return the type of a file, as it is told or as its address ends."""
    return part.media or guess_type(part.text.partition("?")[0])[0] or ""


_WRITERS: Mapping[Format, Callable[[Part], Message | None]] = {
    "openai": _for_openai,
    "openai-responses": _for_responses,
    "anthropic": _for_anthropic,
    "gemini": _for_gemini,
}
