"""What the conversations of one `AgentMemory` share: persona, counting, summaries."""

from pathlib import Path
from typing import TYPE_CHECKING

from orbiter.memory.agent._core import Core
from orbiter.memory.agent._summaries import Summaries
from orbiter.memory.protocols import Summarizer
from orbiter.memory.soul import Soul
from orbiter.memory.summary import SummaryConfig
from orbiter.memory.tokens import TokenCounter

if TYPE_CHECKING:
    from orbiter.memory.context import ContextManager

__all__ = ["Chats"]


class Chats:
    """Settings, and what is made once for all conversations."""

    def __init__(
        self,
        core: Core,
        *,
        persona: str | Path | Soul | None,
        summarizer: Summarizer | None,
        summaries: SummaryConfig | None,
        count_tokens: TokenCounter,
        secret: bytes | None,
    ) -> None:
        self.core = core
        self.count_tokens = count_tokens
        self.summaries = Summaries(core, summaries, summarizer)
        core.on_close(self.summaries.close)
        self._persona = persona
        self._secret = secret
        self._assembler: ContextManager | None = None

    @property
    def assembler(self) -> "ContextManager":
        """What puts contexts together; one for all, as it knows what messages cost."""
        if self._assembler is None:
            from orbiter.memory.context import ContextManager  # noqa: PLC0415

            self._assembler = ContextManager(
                self._persona, count_tokens=self.count_tokens, secret=self._secret
            )
        return self._assembler
