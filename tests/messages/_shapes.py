"""Messages and their blocks in each format, legal unless told otherwise."""

from typing import Any

from orbiter.memory.messages import Message


def chat_call(id: Any = "c1", **function: Any) -> Message:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"} | function}


def chat_calls(*calls: Any) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def chat_result(id: str = "c1") -> Message:
    return {"role": "tool", "tool_call_id": id, "content": "done"}


def entry_call(id: Any = "c1", **fields: Any) -> Message:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} | fields


def entry_output(id: str = "c1", **fields: Any) -> Message:
    return {"type": "function_call_output", "call_id": id, "output": "done"} | fields


def built_in_call(kind: str) -> Message:
    return {"type": f"{kind}_call", "call_id": "c1"}


def built_in_output(kind: str, output: Any) -> Message:
    return {"type": f"{kind}_call_output", "call_id": "c1", "output": output}


def use(id: Any = "t1", **fields: Any) -> Message:
    return {"type": "tool_use", "id": id, "name": "f", "input": {}} | fields


def uses(*blocks: Any) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def result(id: Any = "t1", **fields: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": id, "content": "done"} | fields


def results(*blocks: Any) -> Message:
    return {"role": "user", "content": list(blocks)}


def model(*parts: Any) -> Message:
    return {"role": "model", "parts": list(parts)}


def person(*parts: Any) -> Message:
    return {"role": "user", "parts": list(parts)}


def function_call(name: Any = "f", **fields: Any) -> Message:
    return {"functionCall": {"name": name, "args": {}} | fields}


def function_response(name: Any = "f", **fields: Any) -> Message:
    return {"functionResponse": {"name": name, "response": {"output": "done"}} | fields}


USER: Message = {"role": "user", "content": "Hello."}
REPLY: Message = {"role": "assistant", "content": "Hello, Ann."}
HELLO = person({"text": "Hello."})
ANSWER = model({"text": "Hello, Ann."})
REASONING: Message = {"type": "reasoning", "id": "rs_1", "summary": []}
TEXT: Message = {"type": "text", "text": "Go on."}
THINKING: Message = {"type": "thinking", "thinking": "Hm.", "signature": "E"}
