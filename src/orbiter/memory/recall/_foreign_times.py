"""Times in other languages: what a text says of them, put into the English that `_dates` reads.

"Vor zwei Wochen" becomes "2 week ago", "el 3 de mayo" "3 may". Nothing else of a text is kept.
German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese and Japanese; without accents,
as `words.tokens` returns words.
"""

import re
from functools import cache

from orbiter.memory._lazy import lazy_pattern
from orbiter.memory.tasks.offload import SLICE
from orbiter.memory.text.languages import ENGLISH, everyday_words, language_of, stop_words
from orbiter.memory.text.words import COMMON, is_of_other_script, is_unspaced, tokens

__all__ = ["asks_only_time", "asks_when", "has_time", "in_english", "time_words"]

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_UNITS = ("day", "week", "month", "year", "weekend")
_SEASONS = ("spring", "summer", "autumn", "winter")
_TIMES = frozenset(
    (*_MONTHS, *_DAYS, *_UNITS, *_SEASONS, "yesterday", "today", "tomorrow", "season", "2ago")
)
"""Words that say when something was."""

# Each month, weekday, unit and number has a column; forms of one word have a | between them.
_TABLES = {
    "de": {
        "months": "januar februar marz april mai juni juli august september oktober november "
        "dezember",
        "days": "montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag",
        "units": "tag|tage|tagen woche|wochen monat|monate|monaten|monats jahr|jahre|jahren "
        "wochenende",
        "numbers": "ein|eine|einem|einer|einen|ersten|erste zwei|zweiten drei|dritten vier|vierten "
        "funf|funften sechs|sechsten sieben|siebten acht|achten neun|neunten zehn|zehnten "
        "elf|elften zwolf|zwolften",
        "last": "letzte|letzten|letzter|letztes|letztem|vorige|vorigen|voriges|vergangene|"
        "vergangenen|vergangenes",
        "this": "diese|diesen|dieser|dieses|diesem",
        "on": "am",
        "before": "vor",
        "others": "vorgestern=2ago gestern=yesterday "
        "heute=today morgen=tomorrow fruhling=spring sommer=summer "
        "herbst=autumn winter=winter",
        "when": "wann|um wie viel uhr|um wieviel uhr|wie lange|an welchem tag|welchem jahr|"
        "welchem monat|an welchem datum",
    },
    "fr": {
        "months": "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre "
        "decembre",
        "days": "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "units": "jour|jours semaine|semaines mois an|ans|annee|annees week-end|weekend",
        "numbers": "un|une|premier deux trois quatre cinq six sept huit neuf dix onze douze",
        "after_last": "dernier|derniere|derniers|dernieres|passe|passee",
        "last": "",
        "this": "cette|ce|cet",
        "before": "ilya",
        "others": "avanthier=2ago hier=yesterday "
        "aujourd=today demain=tomorrow printemps=spring ete=summer "
        "automne=autumn hiver=winter",
        "when": "quand|a quelle heure|quel jour|quelle annee|quel mois|combien de temps|"
        "quelle date",
    },
    "es": {
        "months": "enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre "
        "noviembre diciembre",
        "days": "lunes martes miercoles jueves viernes sabado domingo",
        "units": "dia|dias semana|semanas mes|meses ano|anos finde|weekend",
        "numbers": "un|una|uno|primero dos tres cuatro cinco seis siete ocho nueve diez once doce",
        "after_last": "pasado|pasada",
        "last": "ultimo|ultima|ultimos|ultimas",
        "this": "este|esta",
        "before": "hace",
        "others": "anteayer=2ago antier=2ago ayer=yesterday "
        "hoy=today manana=tomorrow primavera=spring verano=summer "
        "otono=autumn invierno=winter",
        "when": "cuando|a que hora|que dia|que ano|que mes|cuanto tiempo|que fecha",
    },
    "it": {
        "months": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre "
        "novembre dicembre",
        "days": "lunedi martedi mercoledi giovedi venerdi sabato domenica",
        "units": "giorno|giorni settimana|settimane mese|mesi anno|anni weekend",
        "numbers": "un|una|uno|primo due tre quattro cinque sei sette otto nove dieci undici "
        "dodici",
        "after_last": "scorso|scorsa|passato|passata",
        "last": "ultimo|ultima|ultimi|ultime",
        "this": "questo|questa",
        "others": "fa=ago avantieri=2ago ieri=yesterday "
        "oggi=today domani=tomorrow primavera=spring estate=summer "
        "autunno=autumn inverno=winter",
        "when": "quando|a che ora|che giorno|che anno|in quale anno|quanto tempo|che data",
    },
    "pt": {
        "months": "janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro "
        "dezembro",
        "days": "segunda terca quarta quinta sexta sabado domingo",
        "units": "dia|dias semana|semanas mes|meses ano|anos weekend",
        "numbers": "um|uma|primeiro dois|duas tres quatro cinco seis sete oito nove dez onze doze",
        "after_last": "passado|passada",
        "last": "ultimo|ultima|ultimos|ultimas",
        "this": "este|esta|neste|nesta",
        "before": "ha|faz",
        "others": "atras=ago anteontem=2ago ontem=yesterday "
        "hoje=today amanha=tomorrow primavera=spring "
        "verao=summer outono=autumn inverno=winter",
        "when": "quando|a que horas|que horas|que dia|que ano|que mes|quanto tempo|que data",
    },
    "nl": {
        "months": "januari februari maart april mei juni juli augustus september oktober november "
        "december",
        "days": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        "units": "dag|dagen week|weken maand|maanden jaar|jaren weekend",
        "numbers": "een|eerste twee|tweede drie|derde vier|vierde vijf|vijfde zes|zesde zeven acht "
        "negen tien elf twaalf",
        "last": "vorige|vorig|afgelopen|laatste",
        "this": "deze|dit",
        "on": "op",
        "others": "geleden=ago eergisteren=2ago gisteren=yesterday "
        "vandaag=today morgen=tomorrow lente=spring "
        "zomer=summer herfst=autumn winter=winter",
        "when": "wanneer|hoe laat|welke dag|welk jaar|welke maand|hoe lang|welke datum",
    },
    "ru": {
        "months": "январь|января|январе февраль|февраля|феврале март|марта|марте "
        "апрель|апреля|апреле маи|мая|мае июнь|июня|июне июль|июля|июле август|августа|августе "
        "сентябрь|сентября|сентябре октябрь|октября|октябре ноябрь|ноября|ноябре "
        "декабрь|декабря|декабре",
        "days": "понедельник вторник среда|среду четверг пятница|пятницу суббота|субботу "
        "воскресенье",
        "units": "день|дня|днеи неделя|неделю|недели|недель|неделе месяц|месяца|месяцев|месяце "
        "год|года|году|лет выходные|выходных",
        "numbers": "один|одну|первого два|две|второго три|третьего четыре|четвертого пять|пятого "
        "шесть|шестого семь|седьмого восемь|восьмого девять|девятого десять|десятого одиннадцать "
        "двенадцать",
        "last": "прошлыи|прошлая|прошлои|прошлую|прошлом|прошлое|прошлых|прошлые|"
        "последние|последнии",
        "this": "этот|эта|этои|эту|этом",
        "others": "назад=ago позавчера=2ago вчера=yesterday "
        "сегодня=today завтра=tomorrow весна=spring "
        "весной=spring лето=summer летом=summer осень=autumn осенью=autumn зима=winter "
        "зимои=winter",
        "when": "когда|во сколько|в котором часу|какого числа|в каком году|в каком месяце|"
        "в какои день|как давно|как долго|сколько времени",
    },
}  # fmt: skip
_LINKS = {
    "de": "zwischen=between und=and von=from vom=from bis=to seit=since dem=the den=the der=the",
    "fr": "entre=between et=and de=from du=from au=to a=to jusqu=to depuis=since le=the",
    "es": "entre=between y=and de=from del=from al=to a=to hasta=to desde=since",
    "it": "tra=between fra=between e=and dal=since da=since al=to a=to il=the",
    "pt": "entre=between e=and de=from a=to ate=to desde=since",
    "nl": "tussen=between en=and van=from tot=to sinds=since de=the",
    "ru": "между=between и=and с=since по=to до=to",
}
"""Words that make one time of two, or all the time since one; they tell no time by themselves."""
_DIGITS = {digit: number for number, digit in enumerate("一二三四五六七八九十", 1)} | {
    "两": 2,
    "兩": 2,
}
_NUMBER = r"(\d{1,4}|[一二三四五六七八九十两兩]{1,3})"
_UNSPACED = (
    (rf"(?:(\d{{4}})年)?{_NUMBER}月(?:{_NUMBER}[日号號])?(?!前)", "date"),
    (rf"{_NUMBER}(?:日|天)前", "day"),
    (rf"{_NUMBER}(?:週間|周|星期|个星期|個星期|礼拜)前", "week"),
    (rf"{_NUMBER}(?:か月|ヶ月|カ月|个月|個月)前", "month"),
    (rf"{_NUMBER}年前", "year"),
    (r"(\d{4})年", "in year"),
    ("一昨日|おととい|前天", "2 day ago"),
    ("昨日|昨天", "yesterday"),
    ("先週末|上周末|上週末|上个周末|上個週末", "last weekend"),
    ("今週末|这周末|這週末|这个周末|這個週末|本周末", "this weekend"),
    ("先週|上周|上週|上星期|上个星期|上個星期", "last week"),
    ("今週|这周|這週|本周|这个星期|這個星期", "this week"),
    ("先月|上个月|上個月|上月", "last month"),
    ("今月|这个月|這個月|本月", "this month"),
    ("去年|昨年", "last year"),
    ("今年", "this year"),
    ("[月火水木金土日]曜日?|(?:星期|周|週|礼拜)[一二三四五六日天]", "season"),
    ("今日|今天|明日|明天|[春夏秋冬]", "season"),
)
_UNSPACED_WHEN = lazy_pattern(
    "いつ|何時|何年|何月|何日|何曜日|どのくらいの期間|什么时候|什麼時候|何时|几点|几号|几月|哪天|哪年|哪一年|多久"
)
_HAPPENED = {
    language: frozenset(words.split())
    for language, words in {
        "de": "gemacht machte machten getan passiert passierte geschehen geschah erlebt",
        "fr": "fait faisais faisions passe arrive j'ai avons",
        "es": "hice hicimos hizo hecho paso sucedio ocurrio",
        "it": "fatto facevo successo accaduto",
        "pt": "fiz fizemos fez feito aconteceu",
        "nl": "gedaan deed deden gebeurd gebeurde",
        "ru": "делал делала делали сделал сделала случилось произошло было были",
    }.items()
}
"""Words of a question for all that happened at a time."""
_UNSPACED_HAPPENED = lazy_pattern(
    "何を|何が|何か|なに|どんなこと|こと|ありました|あった|起きました|起こりました|しました|した|していました|していた|して"
    r"|过得|发生|發生|做|干|什么|什麼|哪些|事情|事|我们|我們|我|了|过|過|些|都|有|呢|吗|嗎|私たち|私|僕|[はがにのをもかで、，？?。\s]"
)
_PHRASES = (
    ("il y a", "ilya"),
    ("avant hier", "avanthier"),
    ("antes de ayer", "anteayer"),
    ("altro ieri", "avantieri"),
    ("ieri l altro", "avantieri"),
    ("week end", "weekend"),
    ("fin de semana", "weekend"),
    ("fine settimana", "weekend"),
    ("fim de semana", "weekend"),
)
"""Words that name a time together, as `words.tokens` returns them."""
_COUNTS = frozenset(
    """three four five six seven eight nine ten eleven twelve few day days week weeks month months
    year years happened previous""".split()  # noqa: SIM905 - read by people
)
"""Words of an English time that are not everyday words."""
_PIECE = lazy_pattern(r"\d+(?:[./-]\d+)+|\d+|[^\W\d_]+")


@cache
def _table(language: str) -> dict[str, str]:
    """Return what each word of a language is in English; `<` and `>` change the order."""
    table = _TABLES[language]
    columns = (("months", _MONTHS), ("days", _DAYS), ("units", _UNITS))
    numbers = [str(number) for number in range(1, 13)]
    english = dict(pair.split("=") for pair in table["others"].split())
    for name, words in (("numbers", numbers), *columns):
        for forms, word in zip(table[name].split(), words, strict=True):
            english.update(dict.fromkeys(forms.split("|"), word))
    marks = {"last": "last", "this": "this", "on": "on", "before": "<ago", "after_last": ">last"}
    for name, mark in marks.items():
        english.update(dict.fromkeys(filter(None, table.get(name, "").split("|")), mark))
    return english


@cache
def time_words(language: str) -> dict[str, str]:
    """Return the words of a language that name times, with what each is in English.

    "Last" and "this" tell nothing by themselves.
    """
    if language not in _TABLES:
        return {}
    named = {word: put for word, put in _table(language).items() if put in _TIMES}
    relative = (word for word, put in _table(language).items() if put in ("last", ">last", "this"))
    return dict.fromkeys(relative, "") | named


@cache
def _links(language: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in _LINKS[language].split())


@cache
def _when(language: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{_TABLES[language]['when']})(?!\w)")


def _language(text: str) -> str:
    """Return the language of a text: English, one of the tables, or `zh` for unspaced scripts."""
    words = tokens(text[:SLICE])
    others = [word for word in words if is_of_other_script(word)]
    if any(map(is_unspaced, others)):
        return "zh"
    if len(others) * 2 > len(words):
        return "ru"
    language = language_of(words, text)
    if len(words) > _SHORT or (
        language != ENGLISH and not _table(language).keys().isdisjoint(words)
    ):
        return language
    return _language_of_times(words) or language


_SHORT = 12
_SIGNS = 2
_ENGLISH_TOO = frozenset(
    (*_MONTHS, *_DAYS, *_UNITS, "winter", "estate", "once", "mars", "mayo", "marco", "sept")
)


@cache
def _time_words() -> dict[str, frozenset[str]]:
    """Return the words of each language by which times are named, and that English has not."""
    return {
        language: frozenset(word for word in _table(language) if len(word) > len("for"))
        - _ENGLISH_TOO
        for language in _TABLES
    }


def _language_of_times(words: list[str]) -> str | None:
    """Return the language of a text too short to tell it otherwise, as "Was war gestern?".

    It has the word for a time of that language and another word of it, and nothing that is common
    in English only.
    """
    held = frozenset(words)
    english = held & COMMON
    best, most = None, (_SIGNS, 0)
    for language, named in _time_words().items():
        if held.isdisjoint(named) or not english <= (own := stop_words(language)):
            continue
        of_times = _table(language).keys() & held
        signs = len(own & held | of_times), len(of_times)
        if signs > most:
            best, most = language, signs
    return best


def in_english(text: str) -> str | None:
    """Return the times that *text* names as English names them; `None` of an English text."""
    language = _language(text)
    if language == ENGLISH:
        return None
    if language == "zh":
        return _of_unspaced(text)
    english = _table(language)
    words = _joined_words(text[:SLICE])
    numeric = " ".join(piece for piece in _PIECE.findall(text[:SLICE]) if not piece.isalnum())
    english = _links(language) | english
    parts = [part if part.isdigit() else english.get(part, ".") for part in words]
    parts = [part for part in parts if part != "."] if language in ("es", "pt") else parts
    put = " ".join(parts)
    units = "|".join((*_UNITS, *_DAYS, *_MONTHS, *_SEASONS, "season"))
    put = put.replace("2ago", "2 day ago")
    put = re.sub(rf"<ago (\d+) ({units})\b", r"\1 \2 ago", put)
    put = re.sub(rf"\b({units}) >last", r"last \1", put)
    put = re.sub(r"(\d) from (?=[a-z])", r"\1 ", put)  # "3 de mayo"
    months = "|".join((*_MONTHS, *_SEASONS))
    put = re.sub(rf"(?<!\d )(?<!last )(?<!this )\b({months})\b", r"in \1", put)
    put = re.sub(rf"\b({months}) from (?=\d)", r"\1 ", put)  # "mayo de 2023"
    put = re.sub(rf"(?<!{' )(?<!'.join(_MONTHS)} )\b((?:19|20)\d\d)\b", r"in \1", put)
    did = "" if _HAPPENED[language].isdisjoint(words) else "did "
    return f"{did}{put} {numeric}"


def _joined_words(text: str) -> list[str]:
    """Return the words of a text, those that name a time together as one."""
    words = f" {' '.join(tokens(text))} "
    for phrase, word in _PHRASES:
        words = words.replace(f" {phrase} ", f" {word} ")
    return words.split()


def _of_unspaced(text: str) -> str:
    """Return the times of a Chinese or Japanese text."""
    put: list[str] = []
    rest = text[:SLICE]
    for pattern, meaning in _UNSPACED:
        put += [_unspaced_time(match, meaning) for match in re.finditer(pattern, rest)]
        rest = re.sub(pattern, " ", rest)
    return " . ".join(filter(None, put))


def _unspaced_time(match: re.Match[str], meaning: str) -> str:
    if meaning == "date":
        year, month, day = match[1], _counted(match[2]), match[3] and _counted(match[3])
        if not 1 <= month <= len(_MONTHS):
            return ""
        return " ".join(str(part) for part in (day or "in", _MONTHS[month - 1], year) if part)
    if meaning == "in year":
        return f"in {match[1]}"
    return f"{_counted(match[1])} {meaning} ago" if match.groups() else meaning


def _counted(number: str) -> int:
    """Return a number up to 99 that is written in digits or in characters."""
    if number.isdecimal():
        return int(number)
    tens, ten, ones = number.rpartition("十")
    if not ten:
        return _DIGITS[number[-1]]
    return 10 * (_DIGITS[tens[-1]] if tens else 1) + (_DIGITS[ones[-1]] if ones else 0)


def asks_when(text: str) -> bool:
    """Tell whether a question in another language than English asks when something was."""
    language = _language(text)
    if language == ENGLISH:
        return False
    if language == "zh":
        return _UNSPACED_WHEN.search(text) is not None
    return _when(language).search(" ".join(tokens(text))) is not None


def asks_only_time(text: str) -> bool:
    """Tell whether a question that is about a time names nothing else."""
    language = _language(text)
    if language == ENGLISH:
        known = _COUNTS | COMMON | everyday_words()
        return all(word in known or word.isdigit() for word in tokens(text))
    if language == "zh":
        for pattern, _ in _UNSPACED:
            text = re.sub(pattern, " ", text)
        return not _UNSPACED_HAPPENED.sub("", text)
    named = {*_table(language), *_links(language), *_HAPPENED[language], "cos", "los"}
    named |= stop_words(language)
    return all(word in named or word.isdigit() for word in _joined_words(text))


def has_time(text: str) -> bool:
    """Tell whether a text in another language than English says when something was."""
    put = in_english(text)
    return put is not None and not _TIMES.isdisjoint(put.split())
