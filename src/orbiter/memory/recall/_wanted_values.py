"""Values that a question asks for, as an amount, a password or a time: a note may lack it.

"The router is a Fritzbox" has no password, and "I bought a tent" does not say what it cost.
"""

import re
from functools import lru_cache

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.recall._features import says_when
from orbiter.memory.recall._foreign_statements import statement_in_english
from orbiter.memory.recall._query_analysis import Question
from orbiter.memory.text import words

__all__ = ["lacks_value"]

_ASKS_AMOUNT = lazy_pattern(
    r"\bhow (?:old|tall|high|heavy|expensive)\b"
    r"|\bhow much (?!(?:do|does|did|would) \w+ (?:care|enjoy|hate|know|like|love|miss|trust)\b)"
    r"|\b(?:account|customer|flight|frame|house|invoice|mobile|phone|plate|serial) numbers?\b"
    r"|\bnumber plate\b|\b(?:cost|iban|postcode|price|rent|salary|zip code) (?:of|for)\b"
    r"|\bwhat (?:does|did|do|will) .{1,60} (?:charge|cost|weigh)\b"
    r"|\bwhat(?:['’]s| is| are| was) (?:my|our|his|her|the|\w+['’]s) (?:\w+ )?(?:age|bank account"
    r"|budget|fee|height|income|opening hours|price|rent|salary|wage|weight)\b"
    r"|\bwie (?:alt|groß|hoch|schwer|teuer|viel)\b|\bcombien|\bquel âge|\bcuánt[oa]s? (?:años"
    r"|costó|cuesta|es|pago|pesa|vale)|\bquant[oi] (?:anni|cost|custa|custou|pag|pes)"
    r"|\bhoe (?:duur|hoog|oud|veel kost|zwaar)\b|\bсколько (?:весит|лет|стоит)",
    re.IGNORECASE,
)
_ASKS_SECRET = lazy_pattern(
    r"\b(?:passwords?|passcode|e-?mail(?: address)?|url|ip address|user ?name|login"
    r"|passwort|kennwort|mot de passe|contraseña|senha|wachtwoord|пароль)\b",
    re.IGNORECASE,
)
_AMOUNT = lazy_pattern(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty"
    r"|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|dozen|double|free|nothing"
    r"|zero|(?:same|less|more) (?:as|than)|(?:zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf"
    r"|zwölf)\w*|\w*(?:zig|hundert|tausend)|deux|trois|quatre|cinq|dix|vingt|trente|cent|mille|dos"
    r"|tres|cuatro|cinco|diez|veinte|treinta|cien|mil|due|quattro|cinque|dieci|venti|cento|dois|dez"
    r"|vinte|trinta|twee|drie|vijf|tien|twintig|kostenlos|gratuit|gratis)\b|два|три|четыре|пять"
    r"|десять|двадцать|сто\b|тысяч|[一二三四五六七八九十百千万]",
    re.IGNORECASE,
)
_SECRET = lazy_pattern(r"[^\W\d_]\d|\d[^\W\d_]|\w[@/._-]\w|[\"'«»“”`:=]\s?\S")
"""What a password or an address has, and few other words."""
_EVENTS = {
    "birthday": "birthday birthdate birth born",
    "wedding": "wedding marry married marriage bride",
    "anniversary": "anniversary wedding marry married",
    "graduation": "graduation graduate",
    "funeral": "funeral burial bury buried",
    "due date": "due baby birth born",
    "deadline": "deadline due submit hand submission",
}
"""What is celebrated or due once, and the words of which a note that tells its day has one."""
_ASKS_EVENT = lazy_pattern(rf"\b({'|'.join(_EVENTS)})\b", re.IGNORECASE)
_TIME = lazy_pattern(
    r"\d|\b(?:january|february|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:to|yester|mid|week|birth|holi)?days?\b"
    r"|\b(?:week|month|year|hour|minute|morning|evening|afternoon|night|weekend|summer|winter|autumn"
    r"|spring)s?\b|\b(?:noon|midnight|dawn|dusk|tomorrow|christmas|easter|new year|daily|weekly"
    r"|monthly|yearly|soon|never|always|after|before|until|when|while|during|now|already|one|two"
    r"|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half past|quarter)\b",
    re.IGNORECASE,
)


def lacks_value(question: Question, content: str) -> bool:
    """Tell whether a note has no value of the kind that is asked for.

    When something was, its own date may tell. A time of another event than the one asked for is
    none: a trip with Mia in May is not her birthday.
    """
    if (name := _wanted_value(question.text)) is not None:
        has_value = (_SECRET if name else _AMOUNT).search(content) is not None
        return not has_value and not (name and name in content.lower())
    if not question.asks_when:
        return False
    named = _event_terms(question.text)
    if named and named.isdisjoint(words.terms(content)) and not _is_foreign(content):
        return True
    if question.asks_past:
        return False
    if _is_foreign(question.text):
        return False  # of other languages too few words for times are known: "donnerstags"
    return _TIME.search(content) is None and not says_when(content)


@lru_cache(maxsize=16)
def _wanted_value(text: str) -> str | None:
    """Return "" if a question asks for an amount, or the word for a password or an address."""
    if _ASKS_AMOUNT.search(text) is not None:
        return ""
    secret = _ASKS_SECRET.search(text)
    return None if secret is None else secret[0].lower().split()[-1].rstrip("s")


@lru_cache(maxsize=16)
def _event_terms(text: str) -> frozenset[str]:
    """Return the terms by which a text tells of the event that a question asks for, if any."""
    event = _ASKS_EVENT.search(text)
    return frozenset() if event is None else frozenset(words.terms(_EVENTS[event[1].lower()]))


def _is_foreign(content: str) -> bool:
    return statement_in_english(content) != content
