"""SECURITY.md says of logs, doors and stored data what the code does."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
POLICY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]


def test_the_policy_names_the_loggers_there_are() -> None:
    named = {name for text in SOURCES for name in re.findall(r'getLogger\("([\w.]+)"', text)}
    library = {name for name in named if not name.startswith(("orbiter.memory.server", "uvicorn"))}

    assert {f"`{name}`" for name in library if f"`{name}`" not in POLICY} == set()
    assert "nothing is logged" not in POLICY.lower()


def test_the_policy_tells_of_what_decides_who_gets_in_and_what_is_kept() -> None:
    for topic, name in {
        "OpenID Connect": "--oidc-issuer",
        "Jobs": "orbiter_jobs",
        "Personal data": "pii",
        "audit log": "AuditMode",
    }.items():
        assert any(name in text for text in SOURCES), name
        assert topic in POLICY
