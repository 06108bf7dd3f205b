"""Search by meaning, words and recency, with reasons: `recall`."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbiter.memory._lazy import install_command
from orbiter.memory.cli._command import CommandContext, command, new_app
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import UsageError, say
from orbiter.memory.cli._item_ids import note_nothing, note_replaced
from orbiter.memory.cli._options import (
    AsOf,
    Kind,
    MinRelevance,
    Since,
    Spread,
    Tagged,
    Until,
    Where,
    check_past,
    read_when,
    read_where,
    read_words,
)
from orbiter.memory.cli._output import styled
from orbiter.memory.cli._text import moment, one_line
from orbiter.memory.cli._views import (
    entry,
    hit_json,
    hit_lines,
    hit_text,
    left_out_json,
    left_out_lines,
    scope_label,
)
from orbiter.memory.text.ranking import MIN_RELEVANCE, is_answered

if TYPE_CHECKING:
    from orbiter.memory.agent import AgentMemory, ScopedMemory
    from orbiter.memory.recall import RecallResult

__all__ = ["app"]

app = new_app()

_MAX_LEFT_OUT = 5
"""Candidates that came next and are told to a person; JSON has all."""
_LIKELY = 0.5
"""The relevance of what is likelier than not to answer."""


class Level(StrEnum):
    """What a source is worth, the best first."""

    USER = "user"
    AGENT = "agent"
    TOOL = "tool"
    IMPORT = "import"
    WEB = "web"


class Mode(StrEnum):
    """How memories are found."""

    HYBRID = "hybrid"
    WORDS = "words"
    MEANING = "meaning"
    RECENT = "recent"


@command(app, "recall", reads=True)
async def recall(  # noqa: PLR0913 - the filters
    run: CommandContext,
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help="A question, with or without quotes; `-` reads stdin. `--mode recent` needs none.",
            show_default=False,
        ),
    ] = None,
    *,
    k: Annotated[int, typer.Option("-k", "--limit", min=1, help="At most this many.")] = 10,
    mode: Annotated[Mode, typer.Option(help="Search mode.")] = Mode.HYBRID,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    tag: Tagged = None,
    min_trust: Annotated[
        Level | None,
        typer.Option("--min-trust", help="Minimum trust of the source."),
    ] = None,
    min_relevance: MinRelevance = None,
    spread: Spread = None,
    as_of: AsOf = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="All reasons with their points, and the best that were left out."
        ),
    ] = False,
) -> None:
    """Find memories that answer a question, with reasons."""
    filters: dict[str, Any] = {"memory_type": kind, "where": read_where(where, tag)}
    bounds: dict[str, Any] = {
        "since": read_when("since", since),
        "until": read_when("until", until),
        "min_trust": None if min_trust is None else min_trust.value,
        "explain": explain,
    }
    least = MIN_RELEVANCE if min_relevance is None else min_relevance
    answers: dict[str, Any] = {"min_relevance": least, "spread": spread}
    then = read_when("as-of", as_of)
    if then is not None:
        check_past(**bounds, mode=mode in (Mode.MEANING, Mode.RECENT))
    if mode is Mode.MEANING:
        _check_model(run)
    if not query and mode is not Mode.RECENT:
        raise UsageError("missing argument `query`: what do you want to know?")
    question = read_words(query) if query else ""
    waiting = 0
    async with run.both() as (store, memory):
        if then is not None:
            result = await memory.as_of(then).recall(question, k=k, **filters, **answers)
        else:
            if mode in (Mode.HYBRID, Mode.MEANING):
                waiting = await embed_waiting(run.out, store, within=PATIENCE)
            filters |= bounds | answers
            result = await memory.recall(question, k=k, mode=mode.value, **filters)
        await run.note_default_user(store)
        if result:
            _note_answer(run, result)
        else:
            is_told = min_relevance is not None or result.considered
            await _note_nothing(run, store, memory, tag or [], least if is_told else None, kind)
    note_waiting(waiting)
    note_replaced(run, question, where or "", *(tag or ()))
    _print(run, result, waiting=waiting, explain=explain)


def _print(run: CommandContext, result: "RecallResult", *, waiting: int, explain: bool) -> None:
    everyone = run.target.everyone
    if run.out.is_json:
        run.out.data(
            {
                "hits": [hit_json(hit) for hit in result],
                "mode": result.mode,
                "question": result.question,
                "spread": result.spread,
                "considered": result.considered,
                "unembedded": waiting,
                "left_out": [left_out_json(each) for each in result.left_out],
                "reranking": None if result.reranking is None else asdict(result.reranking),
            }
        )
    elif run.out.is_plain() and not explain:
        run.out.rows(
            (
                hit.item.id,
                f"{hit.relevance:.2f}",
                moment(hit.item.created_at),
                hit_text(hit),
                *([scope_label(hit.item.metadata)] if everyone else []),
            )
            for hit in result
        )
    else:
        for rank, hit in enumerate(result, 1):
            mark = styled((f"{rank:>2}", "bold green"))
            width = run.out.console.width
            lines = hit_lines(hit, width, full=explain, shows_scope=everyone)
            run.out.show(entry(mark, lines))
        for each in result.left_out[:_MAX_LEFT_OUT]:
            run.out.show(entry(styled((" –", "dim")), left_out_lines(each)))
    if result.reranking is not None and (explain or result.reranking.error is not None):
        say(str(result.reranking), kind="note")


def _note_answer(run: CommandContext, hits: "RecallResult") -> None:
    """Say so if none of the hits answers the question, or probably none."""
    best = max(hit.relevance for hit in hits)
    if not is_answered(hits):
        run.out.note(f"nothing here answers the question: relevance at most {best:.2f}")
    elif best < _LIKELY:
        run.out.note(f"possible answers: none is likelier than not, relevance at most {best:.2f}")


async def _note_nothing(
    run: CommandContext,
    store: "AgentMemory",
    memory: "ScopedMemory",
    tags: list[str],
    min_relevance: float | None,
    kind: str | None,
) -> None:
    """Say in whose memories nothing was found, and which tag is near to one that is not there."""
    among = "" if run.target.everyone else f" in the memories of {run.target.describe()}"
    wanted = "" if min_relevance is None else f" with a relevance of {min_relevance:g} or more"
    if tags:
        from difflib import get_close_matches  # noqa: PLC0415 - only where nothing is found

        known = [str(each.value) for each in await memory.count_by("tags")]
        for tag in tags:
            if tag not in known:
                near = get_close_matches(tag, known, n=1)
                meant = f"; did you mean `{one_line(near[0])}`?" if near else ""
                say(f"no tag `{one_line(tag)}`{among}{meant}", kind="note")
                return
    way = f"{run.target.or_all('searches')}; `list` shows all memories"
    await note_nothing(run, store, f"nothing found{among}{wanted}{way}", kind=kind)


def _check_model(run: CommandContext) -> None:
    """Raise `UsageError` if there is no model to find by meaning with; a server has its own."""
    from orbiter.memory.backends.registry import is_http_url  # noqa: PLC0415 - `--help` needs it not
    from orbiter.memory.diagnostics import is_installed  # noqa: PLC0415

    if is_http_url(run.target.setting("url")[0]):
        return
    if not run.target.has_model():
        origin = run.target.setting("model")[1]
        raise UsageError(
            f"`--mode meaning` needs the model, and {origin} says `none`; give `--model auto`, or "
            "`--mode words`"
        )
    if not is_installed("local"):
        raise UsageError(
            f"`--mode meaning` needs a model: {install_command('local')}, or give `--mode words`"
        )
