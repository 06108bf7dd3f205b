from pathlib import Path

import pytest

SOUL = "---\nname: Nova\nvoice: dry\n---\nYou watch the sky.\n"


@pytest.fixture
def soul(tmp_path: Path) -> Path:
    path = tmp_path / "SOUL.md"
    path.write_text(SOUL)
    return path
