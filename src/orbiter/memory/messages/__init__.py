"""Items to and from the messages of OpenAI Chat, OpenAI Responses, Anthropic and Gemini.

`frameworks` writes those of Bedrock, LangChain and Pydantic AI, too.

`codec` has the names of the formats, `convert` their registry and the functions. Everything is
loaded on first use: who only needs the names of the formats gets them without the codecs.
"""

from typing import TYPE_CHECKING

from orbiter.memory._lazy import lazy_names

if TYPE_CHECKING:
    from orbiter.memory.messages._open_calls import OpenCalls
    from orbiter.memory.messages._shapes import (
        as_plain,
        check_is_whole,
        format_of,
        is_converse_event,
        is_part,
        join_events,
        join_parts,
        read_shape,
    )
    from orbiter.memory.messages.codec import FORMATS, Codec, Format, Message, Problem
    from orbiter.memory.messages.convert import (
        ProviderMessages,
        codec_for,
        codecs,
        from_messages,
        read_on,
        to_messages,
        validate,
    )
    from orbiter.memory.messages.frameworks import to_bedrock, to_langchain, to_pydantic_ai

__all__ = [
    "FORMATS",
    "Codec",
    "Format",
    "Message",
    "OpenCalls",
    "Problem",
    "ProviderMessages",
    "as_plain",
    "check_is_whole",
    "codec_for",
    "codecs",
    "format_of",
    "from_messages",
    "is_converse_event",
    "is_part",
    "join_events",
    "join_parts",
    "read_on",
    "read_shape",
    "to_bedrock",
    "to_langchain",
    "to_messages",
    "to_pydantic_ai",
    "validate",
]

_load_name, __dir__ = lazy_names(
    __name__,
    {
        "FORMATS": "codec",
        "Codec": "codec",
        "Format": "codec",
        "Message": "codec",
        "OpenCalls": "_open_calls",
        "Problem": "codec",
        "ProviderMessages": "convert",
        "as_plain": "_shapes",
        "check_is_whole": "_shapes",
        "codec_for": "convert",
        "codecs": "convert",
        "format_of": "_shapes",
        "from_messages": "convert",
        "is_converse_event": "_shapes",
        "is_part": "_shapes",
        "join_events": "_shapes",
        "join_parts": "_shapes",
        "read_on": "convert",
        "read_shape": "_shapes",
        "to_bedrock": "frameworks",
        "to_langchain": "frameworks",
        "to_messages": "convert",
        "to_pydantic_ai": "frameworks",
        "validate": "convert",
    },
)
if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__ = _load_name
