"""What a note lacks of what a question asks for, or says of another person or thing.

"The router is a Fritzbox" has no password, and "I bought a tent" does not say what it cost. "My
sister works in Kiel" and "Tomas works in Kiel" do not say where I work.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.model.items import AIMemory, MemoryItem
from orbiter.memory.recall._candidate_pool import speaker_of, told_names
from orbiter.memory.recall._features import says_when
from orbiter.memory.recall._foreign_statements import statement_in_english
from orbiter.memory.recall._query_analysis import Question, is_question, names_in, shortened
from orbiter.memory.text import languages, words
from orbiter.memory.text.text_caches import text_cache

__all__ = ["contradicts", "lacks_value", "names_of_user", "without_values"]

_UNIT = (
    r"(?:%|€|\$|£|(?:euros?|eur|dollars?|pounds?|francs?|yen|kilos?|kg|km|cm|mm|kilomet\w+"
    r"|met(?:er|re)s?|miles?|lit(?:er|re)s?|hours?|minutes?|min|o['’]clock|uhr|pages?|seiten|times"
    r"|people)\b)"
)
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
    r"|zero|no|none|little|hardly|whole|fiver|tenner|an? (?:day|hour|month|week|year)|kein\w*|wenig"
    r"|kaum|ganzen?|ein(?:e|en)? (?:jahr|monat|stunde|tag|woche)|(?:same|less|more) (?:as|than)"
    r"|(?:zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf"
    r"|zwölf)\w*|\w*(?:zig|hundert|tausend)|deux|trois|quatre|cinq|dix|vingt|trente|cent|mille|dos"
    r"|tres|cuatro|cinco|diez|veinte|treinta|cien|mil|due|quattro|cinque|dieci|venti|cento|dois|dez"
    r"|vinte|trinta|twee|drie|vijf|tien|twintig|kostenlos|gratuit|gratis)\b|два|три|четыре|пять"
    r"|десять|двадцать|сто\b|тысяч|[一二三四五六七八九十百千万]",
    re.IGNORECASE,
)
_SECRET = lazy_pattern(r"[^\W\d_]\d|\d[^\W\d_]|\w[@/._-]\w|[\"'«»“”`:=]\s?\S")
"""What a password or an address has, and few other words."""
_EVENTS = {
    "birthday": "birthday birthdate birth born turn",
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
    r"|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half past|quarter|every"
    r"|once|twice|fortnight(?:s|ly)?|(?:bed|break|dinner|lunch|meal|tea)times?"
    r"|(?:at|over|with) (?:breakfast|brunch|lunch|dinner|supper))\b",
    re.IGNORECASE,
)
_DUE = lazy_pattern(r"\b(?:by|no later than)\b", re.IGNORECASE)
_IN_LAW = lazy_pattern(r"\b\w+-in-law\b", re.IGNORECASE)
_OWNER = lazy_pattern(r"(?<!\w)([^\W\da-z_][\w-]+)['’]s\b")
_KIN = {
    "mother": "mother mom mum mama mommy mummy parent",
    "father": "father dad daddy papa parent",
    "sister": "sister sibling",
    "brother": "brother sibling",
    "daughter": "daughter child kid",
    "son": "son child kid",
    "wife": "wife partner spouse",
    "husband": "husband partner spouse",
    "girlfriend": "girlfriend partner",
    "boyfriend": "boyfriend partner",
    "grandmother": "grandmother grandma granny grandparent",
    "grandfather": "grandfather grandpa granddad grandparent",
    "aunt": "aunt auntie",
    **{who: who for who in ("uncle", "cousin", "niece", "nephew", "inlaw")},
    "boss": "boss manager",
    "neighbour": "neighbour neighbor",
    "roommate": "roommate flatmate",
    "dog": "dog puppy pet",
    "cat": "cat kitten pet",
    "horse": "horse pony pet",
    "rabbit": "rabbit bunny pet",
    "hamster": "hamster pet",
    "parrot": "parrot pet",
}
"""Whom a word may mean: a parent is a mother or a father, and a mother is no father."""
_DOES = """allergic birthday born drink drive earn eat hate like live love own play prefer reside
    sleep speak study wear weigh work"""
"""What each person does or is for themselves: where my sister lives, I need not live."""
_SELF = frozenset(("i", "i'm", "i've", "user", "we", "we're", "we've"))
_MINE = frozenset(("my", "our", "user's"))
_WITH_SELF = _SELF | {"me", "us", "both", "together"}
_OWN = _WITH_SELF | _MINE | {"mine", "myself", "ours", "ourselves"}
_REACH = 3
"""Words after a name among which is what is said of its bearer: "Tomas Berg has always worked"."""
_NOT_SUBJECT = frozenset(
    """
    a about after an and as at before beside by for from in into like near of on or than that the
    to via with without
    """.split()  # noqa: SIM905 - read by people
)
"""Words after which a name is not who does something: "the book of Tomas", "at Acme"."""
_PRONOUNS = _SELF | set("it he she they you ich wir er sie es".split())  # noqa: SIM905
_SENTENCE_END = lazy_pattern(r"(?<!\d)[.!?\n]+|(?<=\d)[.!?\n]+$|,\s+(?=[a-z]+ed\b)")
_SUBJECT = lazy_pattern(
    r"\s*(?P<name>[^\W\d_a-z][\w-]+)(?: [^\W\d_a-z][\w-]*)?"
    r"(?:['’]s\b| (?:is|was|has|had|will|can|[a-z]+(?<!s)s)\b)"
)
"""Of whom a note tells by name at its beginning."""
_NUMBER = lazy_pattern(r"\d+(?:[.,]\d+)*")
_NUMBERED = lazy_pattern(
    r"(?<![\w.,])(?P<noun>[^\W\d_]+)(?P<space> ?)(?P<number>\d+(?:[.,]\d+)*)(?![\w:]|[.,]\d)"
    rf"(?!\s?{_UNIT})"
)
_NOT_NUMBERED = lazy_pattern(
    r"(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\w*|may|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|paid|pay|pays|costs?|earns?|earned|weighs?|weighed|spent|spend|charged?|turn(?:s|ed)?|aged?"
    r"|around|approximately|nearly|roughly|since|until|least|most|plus|minus|times"
)
"""Words before an amount, a day or a time."""
_ASKS_WHO = lazy_pattern(
    r"\W*(?:who|wer|qui|quién) (?!(?:is|was|are|were|ist|war|est|es) (?:my|our|mein|mon|ma|mi)\b)",
    re.IGNORECASE,
)
"""What asks who does something, not who the father is."""
_ASKS_WHETHER = lazy_pattern(
    r"\W*(?:(?:and|but|hello|hey|hi|ok|okay|so),? )*(?:(?P<be>am|are|is|were|ist|sind|war(?:en)?"
    r"|was(?! (?:hab|hat|ist|kost|mach|sind|war|wird)))"
    r"|can|could|did|do|does|had|has|have|must|should|will|would"
    r"|(?!(?:wann|was|wen|wer|wie|wo|welch\w*|warum) )\w+(?= (?:ich|wir)\b)"
    r"|hab(?:e|en)|hat(?:te)?|wird|werden|kann) "
)
"""How a question begins that yes or no answers, beside which value it is."""
_NUMBERED_SUBJECT = lazy_pattern(
    r"(?:(?:the|this|that|my|our|your|der|die|das|mein\w?|unser\w?) )?"
    r"(?P<nouns>(?:[^\W\d_]+ ){0,2})[^\W\d_]*\d[\w.,]*(?= \w)"
)
"""The thing that such a question is about, if a number names it: "room 14", followed by more."""
_RANGE = lazy_pattern(r"\d\s?(?:-|–|to|bis)\s?\d")
_OFTEN = 2
"""How many notes that tell of one person by name make that the user, if fewer tell of another."""
_MAX_BYTES = 8 * 2**20
"""How much is remembered of what texts claim."""

_ASKS_AGE = lazy_pattern(
    r"\bhow old\b|\bage of\b|['’]s age\b|\bwie alt\b|\bquel âge|\bcuántos años|\bquanti anni"
    r"|\bquantos anos|\bhoe oud\b|\bсколько .*лет\b",
    re.IGNORECASE,
)
_NO_AGE = lazy_pattern(
    rf"\d[\d.,]*\s?{_UNIT}|[€$£]\s?\d[\d.,]*|\b\d{{1,2}}:\d\d\b|\b\d{{1,2}} ?[ap]m\b"
    r"|\b(?:bus|chapter|class|flat|floor|gate|grade|klasse|line|linie|number|page|platform|raum|room"
    r"|seite|zimmer) (?:\d+\w?|one|two|three|four|five|six|seven|eight|nine|ten)\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)? (?:of )?{month}\b|\b{month} \d{1,2}(?:st|nd|rd|th)?\b"
    r"|\b(?:free|nothing|no|none|little|hardly|whole|fiver|tenner|kein\w*|wenig|kaum|ganzen?)\b".replace(
        "{month}",
        "(?:january|february|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber)",
    ),
    re.IGNORECASE,
)
"""Numbers that are nobody's age: a price, a time, a class, a day without its year."""
_WISH = lazy_pattern(
    r"\b(?:wants?|would (?:like|love)|hopes?|wish(?:es)?|dreams?|plans?|planning|intends?)"
    r" (?:to|of)\b|['’]d (?:like|love) to\b",
    re.IGNORECASE,
)
"""What tells that something has not been done, as far as the clause goes."""
_FOREIGN_WISH = lazy_pattern(r"\bwould\b", re.IGNORECASE)
_CLAUSE_END = lazy_pattern(r"[.!?\n;,]+\s|\b(?:and|but)\b")
_ASKS_TELLING = lazy_pattern(
    r"\b(?:said|say|mention|tell|told|talk|ask|plan|want|wish|decide|note|write)\b", re.IGNORECASE
)
"""What is done by telling a wish."""


def lacks_value(question: Question, content: str) -> bool:
    """Tell whether a note has no value of the kind that is asked for.

    When something was, its own date may tell. A time of another event than the one asked for is
    none: a trip with Mia in May is not her birthday.
    """
    if (name := _wanted_value(question.text)) is not None:
        asks_age = _ASKS_AGE.search(question.text) is not None
        value = _NO_AGE.sub(" ", content) if asks_age else content
        has_value = (_SECRET if name else _AMOUNT).search(value) is not None
        held = content.lower().replace("passphrase", "password")
        return not has_value and not (name and name in held)
    if not question.asks_when:
        return False
    named = _event_terms(question.text)
    if named and named.isdisjoint(words.terms(content)) and not _is_foreign(content):
        return not ("due" in named and _DUE.search(content) and _TIME.search(content))
    if question.asks_past:
        return _is_only_wished(question, content)
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


def _is_only_wished(question: Question, content: str) -> bool:
    """Tell whether a text holds what a question names only as a wish, or a plan for later."""
    if _ASKS_TELLING.search(question.text) is not None:
        return False
    english = statement_in_english(content)
    wish = _WISH if english == content else _FOREIGN_WISH
    clauses = _CLAUSE_END.split(english)
    done = [clause for clause in clauses if wish.search(clause) is None]
    named = frozenset(words.terms(statement_in_english(question.text)))
    return len(done) < len(clauses) and named.isdisjoint(words.terms(" ".join(done)))


def _is_foreign(content: str) -> bool:
    return statement_in_english(content) != content


def contradicts(
    question: Question, item: MemoryItem, held: Set[str], *, own_names: Set[str] = frozenset()
) -> float:
    """Return how far an item is about another's than is asked for, from 0 to 1.

    All of it is if it tells where a sister or Tomas lives and not where I do, of a mother and not
    of the father, of Eva's and not of Ben's, or of room 12 and not of room 14. Half of it is
    if one has a name and the other has not: Eva may be the mother. *own_names* are those of the one
    who asks.
    """
    content = shortened(item.content)
    user_id = item.metadata.user_id or ""
    is_of_other = _tells_of_another(question, content, user_id, own_names)
    if is_of_other or _has_other_number(question.text, content):
        return 1.0
    wanted = _kin_of(question.text)
    owners = _owners_in(question.text) if question.names else frozenset()
    if not (wanted or owners) or not owners.isdisjoint(held):
        return 0.0
    kin = _kin_of(content)
    asks_who = _ASKS_WHO.match(question.text) is not None
    if asks_who:
        kin -= _kin_of(" ".join(content.split(None, 2)[:2])) - wanted
    if wanted and (kin or asks_who):
        return float(bool(kin) and kin.isdisjoint(wanted))
    others = _owners_in(content)
    if owners and others:
        return float(others.isdisjoint(owners))
    return 0.5 if (wanted and others) or (owners and kin) else 0.0


def _tells_of_another(question: Question, content: str, user_id: str, own_names: Set[str]) -> bool:
    """Tell whether a text says of another person what is asked of oneself, or the other way round.

    As "My sister works in Kiel" does of "Where do I work?". Who is with them is not another, and
    neither is a name that the question or the id of the user has.
    """
    claimed = _claims(question.text)
    if not claimed:
        return False
    split = frozenset(words.tokens(statement_in_english(content)))
    named = {*own_names, *words.tokens(user_id), *words.tokens(question.text)}

    def contradict(one: _Claim, other: _Claim) -> bool:
        if one.what != other.what or (one.is_name and not other.is_name):
            return False
        if other.is_name:
            is_of_one = one.who is None or (one.is_name and _is_apart(one.who, split))
            is_known = any(name in named or name in question.text for name in other.who or ())
            return is_of_one and not is_known
        if (one.who is None) == (other.who is None):
            return False
        there = split if one.who is None else _kin_in(words.terms_of(split))
        return there.isdisjoint(_WITH_SELF if one.who is None else one.who)

    return any(contradict(one, other) for one, other in product(claimed, _claims(content)))


def _is_apart(names: Set[str], split: Set[str]) -> bool:
    return not any(word.startswith(name) for name in names for word in split)


class _Claim(NamedTuple):
    """Of whom something is said, and what that is."""

    who: frozenset[str] | None
    """`None` for oneself."""
    what: str
    is_name: bool = False


@text_cache(max_bytes=_MAX_BYTES)
def _claims(text: str) -> frozenset[_Claim]:
    """Return what a text says of the one who speaks, of persons of theirs, and of others."""
    claims: set[_Claim] = set()
    split = words.tokens(english := statement_in_english(text))
    for at, word in enumerate(split):
        following = split[at + 1 : at + 3]
        if word in _SELF:
            claims.update(_Claim(None, what) for what in _does_in(following))
        if word not in _MINE or not following:
            continue
        place = next((n for n, each in enumerate(following) if _kin_in(words.terms_of([each]))), -1)
        if place < 0:
            claims.update(_Claim(None, what) for what in words.terms_of(following))
            continue
        who, rest = _kin_in(words.terms_of([following[place]])), split[at + place + 2 :]
        if following[place].endswith("'s"):
            claims.update(_Claim(who, what) for what in words.terms_of(rest[:2]))
        claims.update(_Claim(who, what) for what in _does_in(rest[:_REACH]))
    names = names_in(text) if english == text else None
    return frozenset(claims.union(_claims_by_name(english, names, is_asking=is_question(text))))


def _claims_by_name(english: str, names: Set[str] | None, *, is_asking: bool) -> set[_Claim]:
    """Return what a text says of whom it calls by name; of them "my colleague Tomas" says more.

    Without *names*, as in German, where each noun has a capital, a clause begins with who does it.
    """
    claims: set[_Claim] = set()
    owners = {f"{name.lower()}'s" for name in _OWNER.findall(english)}
    for sentence in _SENTENCE_END.split(english):
        split = [word for word in words.tokens(sentence) if not word.isdigit()]
        for at, word in enumerate(split):
            name = word.partition("'")[0]
            if names is None:
                is_first = at == 0 or (is_asking and at == 1 and bool(_does_in(split[:1])))
                is_name = is_first and name.isalpha() and not _does_in([name])
            else:
                before = split[at - 1] if at else ""
                is_name = word in owners or not names.isdisjoint(words.terms_of([name]))
                is_name = is_name and before not in _NOT_SUBJECT
            if not is_name or name in words.COMMON or not _OWN.isdisjoint((name, *split[at + 1 :])):
                continue
            if not _OWN.isdisjoint(split[: max(0, at - 2)]):
                continue
            who, rest = frozenset((name,)), split[at + 1 :]
            if word.endswith("'s"):
                claims.update(_Claim(who, what, is_name=True) for what in words.terms_of(rest[:2]))
            near = split[at - 1 :] if names is None and at else rest[:_REACH]
            claims.update(_Claim(who, what, is_name=True) for what in _does_in(near))
    return claims


def names_of_user(question: Question, items: Iterable[MemoryItem]) -> frozenset[str]:
    """Return the names that notes have for the user who asks of themselves, in lower case.

    They say so ("My name is Alice"), or nobody says "I" and most tell of one person.
    """
    if all(claim.who is not None for claim in _claims(question.text)):
        return frozenset()
    own: set[str] = set()
    texts: list[str] = []
    subjects: Counter[str] = Counter()
    for item in items:
        if isinstance(item, AIMemory) or speaker_of(item) is not None:
            continue
        texts.append(content := shortened(item.content))
        own.update(*map(words.tokens, told_names(item, content)))
        subject = _SUBJECT.match(content)
        named = {name for claim in _claims(content) if claim.is_name for name in claim.who or ()}
        subjects.update(named if subject is None else {*named, subject["name"].lower()})
    (most, count), (_, next_count) = [*subjects.most_common(2), ("", 0), ("", 0)][:2]
    if count >= _OFTEN and count > next_count and not any(map(_is_own, texts)):
        own.add(most)
    return frozenset(own)


def _is_own(content: str) -> bool:
    return not _OWN.isdisjoint(words.tokens(statement_in_english(content)))


@lru_cache(maxsize=16)
def without_values(question: str) -> str:
    """Return what of a question may name the thing it is about.

    Whether the value is 5 is answered by another one, so of "Is the retro in room 5?" no number
    names anything. Of "Is room 14 booked at 5?" the one of the subject does.
    """
    whether = _ASKS_WHETHER.match(lowered := question.lower())
    if whether is None:
        return question
    subject = _NUMBERED_SUBJECT.match(lowered, end := whether.end())
    if subject is not None:
        nouns = subject["nouns"].split()
        is_subject = len(nouns) <= 1 or whether["be"] is not None
        if is_subject and _NOT_SUBJECT.isdisjoint(nouns) and _PRONOUNS.isdisjoint(nouns):
            end = subject.end()
    return question[:end] + _NUMBER.sub(" ", question[end:])


def _has_other_number(question: str, content: str) -> bool:
    """Tell whether a text has another number after a noun than a question, and not that number."""
    wanted = _numbered(without_values(question))
    if not wanted or _RANGE.search(content) is not None:
        return False
    numbers = [number.replace(",", ".") for number in _NUMBER.findall(content)]
    if any(_is_part(number, other) for _, number in wanted for other in numbers):
        return False
    return not {noun for noun, _ in wanted}.isdisjoint(noun for noun, _ in _numbered(content))


def _is_part(number: str, other: str) -> bool:
    """Tell whether a number is another, or the beginning of a version of it, as 3 is of 3.12."""
    return number == other or f"{number}.".startswith(f"{other}.") or other.startswith(f"{number}.")


@text_cache(max_bytes=_MAX_BYTES)
def _numbered(text: str) -> frozenset[tuple[str, str]]:
    """Return the numbers of a text that name one of several, as "room 14" and "Q3", by their noun.

    An amount, a day or a time is none.
    """
    language = languages.language_of(words.tokens(text), text)
    numbered: set[tuple[str, str]] = set()
    for match in _NUMBERED.finditer(text):
        noun, number = match["noun"].lower(), match["number"].replace(",", ".")
        if not match["space"]:
            numbered.add((noun, number))
        elif not _NOT_NUMBERED.fullmatch(noun) and noun not in languages.everyday_words():
            terms = words.terms_of(words.tokens(noun), language=language)
            numbered.update((term, number) for term in terms if term not in _does())
    return frozenset(numbered)


def _does_in(split: Sequence[str]) -> list[str]:
    return [term for term in words.terms_of(split) if term in _does()]


@cache
def _does() -> frozenset[str]:
    return frozenset(words.terms(_DOES))


def _kin_of(text: str) -> frozenset[str]:
    text = _IN_LAW.sub("inlaw", statement_in_english(text))
    return _kin_in(words.terms_of(words.tokens(text)))


def _kin_in(terms: Iterable[str]) -> frozenset[str]:
    """Return whom the terms may mean."""
    kin = _kin()
    return frozenset().union(*(kin[term] for term in terms if term in kin))


@cache
def _kin() -> Mapping[str, frozenset[str]]:
    named: dict[str, frozenset[str]] = {}
    for who, written in _KIN.items():
        for term in words.terms_of(written.split()):
            named[term] = named.get(term, frozenset()) | {who}
    return named


def _owners_in(text: str) -> frozenset[str]:
    """Return the terms of names that own something, as in "Eva's"."""
    return frozenset(words.terms_of(name.lower() for name in _OWNER.findall(text)))
