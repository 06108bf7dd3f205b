"""Write the names of times in other languages, from CLDR: `python docs/build_times.py`.

Needs Babel, which `make docs` installs: `.venv-docs/bin/python docs/build_times.py`.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import babel
from babel import dates, localedata, units
from babel.core import get_cldr_version

NAMES = Path(__file__).parents[1] / "src/orbiter/memory/recall/time_names.txt"
HEAD = f"""\
# How other languages name months, weekdays and units of time, and say that a time is past.
# Written by docs/build_times.py from Unicode CLDR {get_cldr_version()} (Babel {babel.__version__}).
# Copyright © 1991-2025 Unicode, Inc. SPDX-License-Identifier: Unicode-3.0 (see NOTICE)
"""
LOCALES = {
    **{name: (name,) for name in ("fr", "it", "nl", "pl", "tr", "ru", "ja", "ko")},
    "de": ("de", "de_AT"),
    "es": ("es", "es_PE"),
    "pt": ("pt", "pt_PT"),
    "zh": ("zh_Hans", "zh_Hant"),
}
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
UNITS = {"day": 1, "week": 7, "month": 30.4375, "year": 365.25}
COUNTS = (1, 2, 5)
"""One, a few and many: languages have another form for each."""
CASES: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "pl": {"months": ((r"da$", "dzie"), (r"a$", "u"), (r"ego$", "ym")), "days": ((r"a$", "ę"),)},
    "ru": {"months": ((r"[ая]$", "е"),), "days": ((r"а$", "у"),)},
    "tr": {
        "months": (
            *((r"([aıou][^aeıioöuü]*[ksşt])$", r"\1ta"), (r"([aıou][^aeıioöuü]*)$", r"\1da")),
            (r"$", "de"),
        ),
        "days": (),
    },
}
"""The case that follows "in" or "on", which CLDR has not: what of a form is replaced."""


def main() -> None:
    """Write the file."""
    parts = [HEAD]
    for language, locales in sorted(LOCALES.items()):
        forms: dict[str, list[str]] = {}
        for locale in locales:
            for english, form in names(locale):
                written = form.lower().replace(" ", "_")
                forms.setdefault(english, []).append(written)
        pairs = (f"{english}={','.join(dict.fromkeys(each))}" for english, each in forms.items())
        lines = textwrap.wrap(" ".join(pairs), 100, break_long_words=False, break_on_hyphens=False)
        parts.append("\n".join((f"[{language}]", *lines, "")))
    NAMES.write_text("".join(parts), encoding="utf-8")


def names(locale: str) -> Iterator[tuple[str, str]]:
    """Yield what is named in English, and how *locale* names it."""
    # Babel changes what it keeps of one language when it reads another: Italian became Chinese.
    localedata._cache.clear()  # noqa: SLF001
    cases = CASES.get(locale, {"months": (), "days": ()})
    for context in ("format", "stand-alone"):
        months = dates.get_month_names("wide", context, locale)
        for month, english in enumerate(MONTHS, 1):
            # "五月" is a number and a month; it is read as such.
            yield from (
                () if is_unspaced(locale) else in_cases(english, months[month], cases["months"])
            )
        widths = ("wide", "abbreviated") if locale[:2] == "zh" else ("wide",)
        for width in widths:
            days = dates.get_day_names(width, context, locale)
            for day, english in enumerate(DAYS):
                # In Portuguese most say "segunda" for "segunda-feira", in Japanese "月曜".
                yield from in_cases(english, re.sub(r"-.*|(?<=曜)日", "", days[day]), cases["days"])
    for unit, length in UNITS.items():
        for count in COUNTS:
            counted = units.format_unit(count, f"duration-{unit}", "long", locale=locale)
            if "duration" not in counted:  # else CLDR refers to a shorter form, and Babel does not
                yield unit, without_number(counted)
            before, unit_form, after = split_up(since(count * length, unit, locale), locale)
            yield unit, unit_form
            yield ("<ago", before) if before else ("ago", after)


def split_up(past: str, locale: str) -> tuple[str, str, str]:
    """Return what stands before the unit and after it in "2 days ago", and the unit."""
    before = past[: re.search(r"\d", past).start()].strip()  # type: ignore[union-attr]
    last = re.search(r".$" if is_unspaced(locale) else r"\S+$", past)
    after = "" if before or last is None else last[0]
    return before, without_number(past.removeprefix(before).removesuffix(after)), after


def is_unspaced(locale: str) -> bool:
    """Tell whether numbers and units stand together."""
    return locale[:2] in ("ja", "ko", "zh")


def since(days: float, unit: str, locale: str) -> str:
    """Return what *locale* has for so many units ago."""
    past: str = dates.format_timedelta(
        timedelta(days=-days), unit, threshold=1000, add_direction=True, locale=locale
    )
    return past.replace("\u00a0", " ")


def in_cases(
    english: str, form: str, cases: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield the form of a name that CLDR has, and the one that follows "in" or "on"."""
    yield english, form
    for ending, other in cases:
        if re.search(ending, form):
            yield english, re.sub(ending, other, form, count=1)
            return


def without_number(phrase: str) -> str:
    """Return the unit that is counted."""
    return re.sub(r"\d+", "", phrase).replace("\u00a0", " ").strip()


if __name__ == "__main__":
    main()
