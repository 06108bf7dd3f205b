"""Search by meaning, words and recency, with reasons: `recall`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import click
from click import UsageError

from orbiter.memory._lazy import install_command
from orbiter.memory.cli._command_context import CommandContext
from orbiter.memory.cli._embed_progress import PATIENCE, embed_waiting, note_waiting
from orbiter.memory.cli._error_messages import say
from orbiter.memory.cli._lookup import note_nothing, note_replaced
from orbiter.memory.cli._options import (
    Filters,
    as_of_option,
    check_past,
    command,
    filter_options,
    limit_option,
    memory_options,
    min_relevance_option,
    output_options,
    read_when,
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

__all__ = ["recall"]

_MAX_LEFT_OUT = 5
"""Candidates that came next and are shown to a person; JSON has all."""
_LIKELY = 0.5
"""The relevance of what is likelier than not to answer."""


@command("recall")
@click.argument("query", nargs=-1, metavar="QUESTION")
@limit_option(10)
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "words", "meaning", "recent"]),
    default="hybrid",
    show_default=True,
)
@filter_options
@click.option(
    "--min-trust",
    type=click.Choice(["user", "agent", "tool", "import", "web"]),
    help="Minimum trust of the source.",
)
@min_relevance_option
@as_of_option
@click.option("--explain", is_flag=True, help="All reasons with points, and what was left out.")
@memory_options()
@output_options
async def recall(  # noqa: PLR0913 - the filters
    run: CommandContext,
    query: tuple[str, ...],
    *,
    limit: int,
    mode: Literal["hybrid", "words", "meaning", "recent"],
    filters: Filters,
    min_trust: str | None,
    min_relevance: float | None,
    as_of: str | None,
    explain: bool,
) -> None:
    """Find memories that answer a question, with reasons.

    The question needs no quotes; `-` reads it from stdin. `--mode recent` needs none.
    """
    arguments = filters.past()
    bounds = filters.bounds() | {"min_trust": min_trust, "explain": explain}
    least = MIN_RELEVANCE if min_relevance is None else min_relevance
    then = read_when("as-of", as_of)
    if then is not None:
        check_past(**bounds, mode=mode in ("meaning", "recent"))
    if mode == "meaning":
        _check_model(run)
    if not query and mode != "recent":
        raise UsageError("missing argument QUESTION: what do you want to know?")
    question = read_words(query) if query else ""
    waiting = 0
    async with run.both() as (store, memory):
        if then is not None:
            result = await memory.as_of(then).recall(
                question, k=limit, **arguments, min_relevance=least
            )
        else:
            if mode in ("hybrid", "meaning"):
                waiting = await embed_waiting(run.out, store, within=PATIENCE)
            arguments |= bounds | {"mode": mode, "min_relevance": least}
            result = await memory.recall(question, k=limit, **arguments)
        if result:
            _note_answer(run, result)
        else:
            is_said = min_relevance is not None or result.considered
            await _note_nothing(run, store, memory, filters, least if is_said else None)
    note_waiting(waiting)
    note_replaced(run, question, *filters.texts())
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
        run.out.table(
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
            lines = hit_lines(hit, run.out.console.width, full=explain, shows_scope=everyone)
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
    filters: Filters,
    min_relevance: float | None,
) -> None:
    """Say in whose memories nothing was found, and which tag is near to one that is not there."""
    among = "" if run.target.everyone else f" in the memories of {run.target.describe()}"
    wanted = "" if min_relevance is None else f" with a relevance of {min_relevance:g} or more"
    if filters.tags:
        from difflib import get_close_matches  # noqa: PLC0415 - only where nothing is found

        known = [str(each.value) for each in await memory.count_by("tags")]
        for tag in filters.tags:
            if tag not in known:
                near = get_close_matches(tag, known, n=1)
                meant = f"; did you mean `{one_line(near[0])}`?" if near else ""
                say(f"no tag `{one_line(tag)}`{among}{meant}", kind="note")
                return
    way = f"{run.target.or_all('searches')}; `list` shows all memories"
    await note_nothing(run, store, f"nothing found{among}{wanted}{way}", kind=filters.kind)


def _check_model(run: CommandContext) -> None:
    """Raise `UsageError` if there is no model to find by meaning with; a server has its own."""
    from orbiter.memory.diagnostics import is_installed  # noqa: PLC0415 - `--help` needs it not

    if run.target.is_remote():
        return
    if run.target.model == "none":
        raise UsageError(
            f"`--mode meaning` needs the model, and {run.target.origins['model']} says `none`; "
            "give `--model auto`, or `--mode words`"
        )
    if not is_installed("local"):
        raise UsageError(
            f"`--mode meaning` needs a model: {install_command('local')}, or give `--mode words`"
        )
