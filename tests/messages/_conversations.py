"""One story as each provider tells it, with all they add to text and calls.

Somebody asks which city is warmer; two calls run in parallel; a later call fails.
"""

from orbiter.memory.messages import Format, Message

TEXTS = [
    "Which city is warmer, Paris or Oslo?",
    "I will look both up.",
    "Paris is warmer.",
    "Book a table there.",
    "It is closed today.",
    "Thank you.",
]
"""What people and the model say, in order."""

CALLS = [
    ("get_weather", {"city": "Paris"}),
    ("get_weather", {"city": "Oslo", "unit": "C"}),
    ("book_table", {"people": 2, "at": "19:00"}),
]

RESULTS = ["21 degrees", '{"temperature": 14, "unit": "C"}', "The restaurant is closed."]

OPENAI: list[Message] = [
    {"role": "developer", "content": "You are a travel agent."},
    {
        "role": "user",
        "name": "ann",
        "content": [
            {"type": "text", "text": TEXTS[0]},
            {
                "type": "image_url",
                "image_url": {"url": "https://example.org/map.png", "detail": "low"},
            },
        ],
    },
    {
        "role": "assistant",
        "content": TEXTS[1],
        "reasoning_content": "Two cities, two calls.",
        "tool_calls": [
            {
                "id": "call_paris",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            },
            {
                "id": "call_oslo",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Oslo","unit":"C"}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_oslo", "content": RESULTS[1]},
    {"role": "tool", "tool_call_id": "call_paris", "name": "get_weather", "content": RESULTS[0]},
    {
        "role": "assistant",
        "content": TEXTS[2],
        "annotations": [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": 0,
                    "end_index": 5,
                    "title": "Weather",
                    "url": "https://example.org/weather",
                },
            }
        ],
    },
    {"role": "user", "content": TEXTS[3]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_table",
                "type": "function",
                "function": {"name": "book_table", "arguments": '{"people": 2, "at": "19:00"}'},
            }
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "call_table",
        "content": [{"type": "text", "text": RESULTS[2]}],
    },
    {"role": "assistant", "content": TEXTS[4]},
    {"role": "user", "content": TEXTS[5]},
]

RESPONSES: list[Message] = [
    {"role": "developer", "content": "You are a travel agent."},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": TEXTS[0]},
            {
                "type": "input_image",
                "image_url": "https://example.org/map.png",
                "detail": "low",
            },
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Two cities, two calls."}],
        "encrypted_content": "gAAAAABo",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": TEXTS[1], "annotations": [], "logprobs": []},
        ],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_paris",
        "name": "get_weather",
        "arguments": '{"city": "Paris"}',
        "status": "completed",
    },
    {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "call_oslo",
        "name": "get_weather",
        "arguments": '{"city":"Oslo","unit":"C"}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "call_oslo", "output": RESULTS[1]},
    {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "call_paris",
        "output": [
            {"type": "input_text", "text": RESULTS[0]},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
        ],
    },
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "weather"},
    },
    {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "status": "completed",
        "content": [
            {
                "type": "output_text",
                "text": TEXTS[2],
                "annotations": [
                    {
                        "type": "url_citation",
                        "start_index": 0,
                        "end_index": 5,
                        "title": "Weather",
                        "url": "https://example.org/weather",
                    }
                ],
            }
        ],
    },
    {"role": "user", "content": TEXTS[3]},
    {
        "type": "function_call",
        "call_id": "call_table",
        "name": "book_table",
        "arguments": '{"people": 2, "at": "19:00"}',
    },
    {"type": "function_call_output", "call_id": "call_table", "output": RESULTS[2]},
    {"role": "assistant", "content": TEXTS[4]},
    {"role": "user", "content": TEXTS[5]},
]

ANTHROPIC: list[Message] = [
    {
        "role": "user",
        "content": [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
            },
            {"type": "text", "text": TEXTS[0], "cache_control": {"type": "ephemeral"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {
                "type": "thinking",
                "thinking": "Two cities, two calls.",
                "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h",
            },
            {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
            {"type": "text", "text": TEXTS[1]},
            {
                "type": "tool_use",
                "id": "toolu_paris",
                "name": "get_weather",
                "input": {"city": "Paris"},
            },
            {
                "type": "tool_use",
                "id": "toolu_oslo",
                "name": "get_weather",
                "input": {"city": "Oslo", "unit": "C"},
                "cache_control": {"type": "ephemeral"},
            },
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_oslo", "content": RESULTS[1]},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_paris",
                "content": [
                    {"type": "text", "text": RESULTS[0]},
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://example.org/paris.png"},
                    },
                ],
                "cache_control": {"type": "ephemeral"},
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "weather"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "title": "Weather",
                        "url": "https://example.org/weather",
                        "encrypted_content": "EqgfCioIARgB",
                        "page_age": None,
                    }
                ],
            },
            {
                "type": "text",
                "text": TEXTS[2],
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "title": "Weather",
                        "url": "https://example.org/weather",
                        "cited_text": "Paris 21",
                        "encrypted_index": "Eo8BCioIAhgB",
                    }
                ],
            },
        ],
    },
    {"role": "user", "content": TEXTS[3]},
    {
        "role": "assistant",
        "content": [
            {
                "type": "tool_use",
                "id": "toolu_table",
                "name": "book_table",
                "input": {"people": 2, "at": "19:00"},
            }
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_table",
                "content": RESULTS[2],
                "is_error": True,
            }
        ],
    },
    {"role": "assistant", "content": TEXTS[4]},
    {"role": "user", "content": TEXTS[5]},
]

GEMINI: list[Message] = [
    {
        "role": "user",
        "parts": [
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
            {"text": TEXTS[0]},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "Two cities, two calls.", "thought": True},
            {"text": TEXTS[1]},
            {
                "functionCall": {"name": "get_weather", "args": {"city": "Paris"}},
                "thoughtSignature": "CiQBAdHtim9A",
            },
            {"functionCall": {"name": "get_weather", "args": {"city": "Oslo", "unit": "C"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "get_weather", "response": {"output": RESULTS[0]}}},
            {
                "functionResponse": {
                    "name": "get_weather",
                    "response": {"temperature": 14, "unit": "C"},
                }
            },
        ],
    },
    {
        "role": "model",
        "parts": [
            {"executableCode": {"language": "PYTHON", "code": "print(21 > 14)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "True\n"}},
            {"text": TEXTS[2], "thoughtSignature": "CiQBAdHtim9B"},
        ],
    },
    {"role": "user", "parts": [{"text": TEXTS[3]}]},
    {
        "role": "model",
        "parts": [
            {
                "functionCall": {
                    "id": "fc-77",
                    "name": "book_table",
                    "args": {"people": 2, "at": "19:00"},
                }
            }
        ],
    },
    {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "fc-77",
                    "name": "book_table",
                    "response": {"error": RESULTS[2]},
                }
            }
        ],
    },
    {"role": "model", "parts": [{"text": TEXTS[4]}]},
    {"role": "user", "parts": [{"text": TEXTS[5]}]},
]

CONVERSATIONS: dict[Format, list[Message]] = {
    "openai": OPENAI,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
}

IDS: dict[Format, list[str]] = {
    "openai": ["call_paris", "call_oslo", "call_table"],
    "openai-responses": ["call_paris", "call_oslo", "call_table"],
    "anthropic": ["toolu_paris", "toolu_oslo", "toolu_table"],
}
"""The ids of its calls, where a format has ids."""
