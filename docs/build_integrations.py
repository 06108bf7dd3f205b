"""Writes the table of docs/integrations/index.md: `python docs/build_integrations.py`.

The counts are those of the last `make test-integrations`, in docs/integrations/results.json. A test
keeps the table current.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).with_name("integrations")
INDEX = FOLDER / "index.md"
RESULTS = FOLDER / "results.json"

BEGIN, END = "<!-- results, by docs/build_integrations.py -->\n", "<!-- end of results -->"

TITLES = {
    "agent-framework": "Microsoft Agent Framework",
    "agno": "agno",
    "anthropic": "Anthropic memory tool",
    "autogen": "AutoGen",
    "claude-agent-sdk": "Claude Agent SDK",
    "crewai": "CrewAI",
    "dspy": "DSPy",
    "google-adk": "Google ADK",
    "haystack": "Haystack",
    "langchain": "LangChain",
    "langgraph": "LangGraph",
    "llama-index": "LlamaIndex",
    "openai-agents": "OpenAI Agents SDK",
    "pydantic-ai": "Pydantic AI",
    "semantic-kernel": "Semantic Kernel",
    "smolagents": "smolagents",
    "strands": "Strands",
}
"""What each framework is called."""


def table() -> str:
    """Return the results as a table in Markdown."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    lines = ["| framework | tested with | suite | passed |", "|---|---|---|---|"]
    for name, result in sorted(results.items(), key=lambda each: TITLES[each[0]].lower()):
        title = f"[{TITLES[name]}]({name}.md)"
        for suite, (passed, total) in sorted(result["suites"].items()):
            lines.append(f"| {title} | {result['version']} | {suite} | {passed} of {total} |")
    return "\n".join(lines) + "\n"


def index() -> str:
    """Return the text of the page with the table as it should be."""
    before, _, rest = INDEX.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
