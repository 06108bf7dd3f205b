"""PII: keyed tokens in place of personal numbers, as a hook that gets what is written.

Pure and deterministic. A text that was scrubbed once must come out of a second pass unchanged,
and the time must grow with the text only; `docs/privacy.md` says what is found and what is not.

To keep that first promise, kinds are searched one after the other, each in what the kinds before
it left. A kind may refuse a number for its neighbours only if these refuse it as well.

Values are searched in a `Reading`: the text as a person or a browser reads it, without encodings,
invisible characters and line breaks. Its offsets lead back, so the rest of a text stays verbatim.
"""

import hmac
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

from orbiter.memory.errors import QueryError
from orbiter.memory.text.decoded import FOLD, read_decoded
from orbiter.memory.text.redaction import PIIHook, scrub

__all__ = [
    "KINDS",
    "PIIHasher",
    "PIIHook",
    "hasher_of",
    "scrub",
]

KINDS = ("email", "phone", "card", "iban")
"""What a `PIIHasher` can find."""

_KEY, _TENANT = "ORBITER_PII_KEY", "ORBITER_PII_TENANT"
_NEW_KEY = 'python -c "import secrets; print(secrets.token_hex(32))"'

_Match = tuple[int, int, str]  # start, end, normal form
_Reader = Callable[[re.Match[str]], tuple[int, str]]  # end, normal form or nothing

_TOKEN_DIGITS = 20  # 80 bits: among a billion values, no two are likely to share a token
_TOKEN = re.compile(rf"\[(?:{'|'.join(KINDS)}):[0-9a-f]{{{_TOKEN_DIGITS}}}\]")

# Scripts written without blanks, and Hangul, whose particles follow a word directly.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"  # parts of letters that `\w` leaves out
_LOCAL_SIGNS = ".%+'&~-"
# Takes every run of letters, address or not, so no run is entered twice: time stays linear.
_EMAIL = re.compile(
    rf"([\w{_MARKS}{_DENSE}{re.escape(_LOCAL_SIGNS)}]++)"
    rf"(?:@((?:(?:(?:(?![{_DENSE}])[\w{_MARKS}-])++|[{_DENSE}][\w{_MARKS}{_DENSE}-]*+)\.)+"
    rf"(?:xn--[a-z0-9-]++|(?:(?![\d_{_DENSE}])[\w{_MARKS}]){{2,}}+|[{_DENSE}]{{2,}}+)))?",
    re.IGNORECASE,
)

_IBAN = re.compile(r"(?<![0-9A-Za-z_])[A-Za-z]{2}[0-9]{2}(?:[ -]?[0-9A-Za-z]){11,30}")
_IBAN_LENGTHS = dict(re.findall(r"(..)(\d\d)", """
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27
    DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28
    IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22
    MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24
    SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""))  # fmt: skip

# The leading digits of the networks; clocks in milliseconds start with 1, written times with 20.
_CARD = re.compile(
    r"(?<![0-9A-Za-z_+])(?<![0-9][-.])(?=2[2-7]|[3-6]|8[12]|9792)"
    r"(?:(?P<blocks>[0-9]{4}(?: [0-9]{4}){3}) [0-9]{1,3}|[0-9]{13,19}|[0-9]{6}[ -][0-9]{13}"
    r"|[0-9]{4}(?P<gap>[ -])(?:[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)(?:[0-9]{4}(?P=gap))?[0-9]{1,7}"
    r"|[0-9]{6}(?P=gap)[0-9]{4,5}|[0-9]{3}(?P=gap)[0-9]{3}(?P=gap)[0-9]{3}))"
    r"(?![0-9A-Za-z_])(?![-.][0-9])"
)

_ALONE = r"(?<![0-9A-Za-z_+])(?<![0-9][-./:])"
_PHONE_END = r"(?!(?!x[0-9]|ext)[0-9A-Za-z_])(?!-[0-9]|-[0-9A-Fa-f]{2}|[./:][0-9])"
_PHONE = re.compile(
    # Layouts of one length: America and Russia, Chinese mobiles, France.
    rf"(?:(?:{_ALONE}(?P<trunk>1|8(?=[-. ]?\())[-. ]?|{_ALONE}|(?<![A-Za-z_])(?=\())"
    r"(?:\([2-9][0-9]{2}\)[-. ]?[0-9]{3}[-. ]?[0-9]{2}[-. ]?[0-9]{2}"
    r"|[2-9][0-9]{2}(?P<a>[-. ])[2-9][0-9]{2}(?P=a)[0-9]{4})"
    rf"|{_ALONE}1[3-9][0-9](?P<b>[- ])[0-9]{{4}}(?P=b)[0-9]{{4}}"
    rf"|{_ALONE}0[1-9](?P<c>[-. ])(?:[0-9]{{2}}(?P=c)){{3}}[0-9]{{2}}){_PHONE_END}"
    # Anything else that starts like a number one can dial; `_phone_ends` says where it ends.
    r"|(?P<head>(?<![A-Za-z_])\(?\+ ?\(?(?=[1-9])|(?<![A-Za-z_])\(00 ?(?=[1-9])"
    rf"|{_ALONE}00 ?(?=[1-9])|{_ALONE}(?=0[1-9])"
    r"|(?<![A-Za-z_])\((?=(?:0[1-9][0-9]{0,3}|[1-9][0-9]{1,3})\))(?!(?:19|20)[0-9]{2}\)))"
    r"(?P<rest>[0-9]{1,15}(?:(?: ?[-./] ?|\)[-./]? ?| ?\(|\) ?\(| )[0-9]{1,15}){0,9})"
)
_NO_PHONE = re.compile(  # a date, a month, an IP address in full
    r"(?:0[0-9](?:([-./ ])[0-9]{2}\1|[./])(?:19|20)[0-9]{2}|[0-9]{3}(?:\.[0-9]{3}){3})(?![0-9])"
)
_COUNTRY_DIGITS = dict.fromkeys(("1", "7", "31", "33", "34", "41", "48", "61"), 11)
_COUNTRY_DIGITS |= {"45": 10, "47": 10, "65": 10, "91": 12}


class PIIHasher:
    """Replaces e-mail addresses, phone, card and IBAN numbers by tokens like `[email:3f9a…]`.

    For one key and tenant the same value, however it is written, gives the same token, and nobody
    without *key* can try values out. Texts that were hashed once stay as they are. A key below 16
    bytes, an empty tenant or an unknown kind is a `ValueError`.
    """

    def __init__(self, key: bytes | str, *, tenant: str, kinds: Sequence[str] = KINDS) -> None:
        if not tenant:
            raise ValueError("`tenant` must not be empty; name whose data it is, such as `acme`")
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            problem = f"unknown kind `{unknown[0]}`" if unknown else "`kinds` must not be empty"
            raise ValueError(f"{problem}; give a tuple of `{'`, `'.join(KINDS)}`")
        raw: object = key.encode() if isinstance(key, str) else key
        if not isinstance(raw, bytes) or len(raw) < 16:
            raise ValueError(
                f"the key needs at least 16 bytes, this `{type(key).__name__}` has not; make one "
                "with `secrets.token_bytes(32)` and keep it in the environment, not in the code"
            )
        self.tenant = tenant
        self.kinds = tuple(kinds)
        # The keyed state, not the key: no dump of the attributes shows it.
        self._hmac = hmac.new(raw, digestmod="sha256")

    def __repr__(self) -> str:
        return f"PIIHasher(tenant={self.tenant!r}, kinds={self.kinds!r})"

    def __call__(self, text: str) -> str:
        """Return *text* with a token in place of each value found; all else stays as it is."""
        # Digits of any script read like 0 to 9; what is not replaced keeps its own.
        folded = re.sub(r"[^\D0-9]", lambda digit: str(int(digit[0])), text.translate(FOLD))
        gaps = _split(0, len(text), [match.span() for match in _TOKEN.finditer(text)])
        tokens: list[tuple[int, int, str]] = []
        for kind in (kind for kind in _FINDERS if kind in self.kinds):
            left: list[tuple[int, int]] = []
            for start, end in gaps:
                reading = read_decoded(folded[start:end], kind)
                match = [
                    (start + reading.starts[a], start + reading.ends[b - 1], value)
                    for a, b, value in _FINDERS[kind](reading.text)
                ]
                tokens += [(a, b, self._token(kind, value)) for a, b, value in match]
                left += _split(start, end, [(a, b) for a, b, _ in match])
            gaps = left
        parts, at = [], 0
        for start, end, token in sorted(tokens):
            parts += [text[at:start], token]
            at = end
        return "".join([*parts, text[at:]])

    def _token(self, kind: str, value: str) -> str:
        tenant, keyed = self.tenant.encode("utf-8", "surrogatepass"), self._hmac.copy()
        # The length keeps tenant and value apart, whatever they hold.
        keyed.update(f"{kind}:{len(tenant)}:".encode() + tenant + value.encode())
        return f"[{kind}:{keyed.hexdigest()[:_TOKEN_DIGITS]}]"


def hasher_of(words: str, *, origin: str = "`pii`", off: str = "`pii=None`") -> PIIHasher | None:
    """Return the hasher that *words* name, with the key in `ORBITER_PII_KEY`; `None` for `none`.

    `QueryError` for other words or without a key; *origin* is who said it, and *off* how not to.
    """
    if words == "none":
        return None
    kinds = KINDS if words == "tokens" else tuple(re.split(r"[\s,]+", words.strip()))
    if not set(kinds) <= set(KINDS):
        raise QueryError(
            f"{origin} must be `none`, `tokens`, or some of `{','.join(KINDS)}`, not `{words}`"
        )
    key = os.environ.get(_KEY)
    if not key:
        raise QueryError(
            f"{origin} is `{words}`, and tokens need a key: set `{_KEY}` to what "
            f"`{_NEW_KEY}` prints, always to the same; or use {off}"
        )
    try:
        return PIIHasher(key, tenant=os.environ.get(_TENANT) or "default", kinds=kinds)
    except ValueError:  # it is too short: all else was looked at
        raise QueryError(
            f"`{_KEY}` needs at least 16 bytes; set it to what `{_NEW_KEY}` prints"
        ) from None


def _split(start: int, end: int, taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the non-empty spans of *start* to *end* that are not *taken*."""
    edges = [start, *(edge for span in taken for edge in span), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def _emails(text: str) -> Iterator[_Match]:
    for match in _EMAIL.finditer(text) if "@" in text else ():
        local, domain = match[1], match[2]
        if domain is None or not local.strip(_LOCAL_SIGNS):
            continue
        if not re.search(rf"[{_DENSE}]", domain):
            # In `请联系ann@example.com` the address starts where the sentence's script ends.
            tail = re.split(rf"[{_DENSE}]", local)[-1]
            local = tail if tail.strip(_LOCAL_SIGNS) else local
        local = local.lstrip(_LOCAL_SIGNS)
        value = unicodedata.normalize("NFKC", f"{local}@{domain}").casefold()
        yield match.end(1) - len(local), match.end(), unicodedata.normalize("NFKC", value)


def _numbers(text: str, pattern: re.Pattern[str], read: _Reader) -> Iterator[_Match]:
    at = 0
    while match := pattern.search(text, at):
        at, value = read(match)
        if value:
            yield match.start(), at, value
        at = at if value else match.start() + 1


def _read_iban(match: re.Match[str]) -> tuple[int, str]:
    length = int(_IBAN_LENGTHS.get(match[0][:2].upper(), 99))
    places = [place for place, char in enumerate(match[0]) if char not in " -"][:length]
    value = "".join(match[0][place] for place in places).upper()
    end = match.start() + places[-1] + 1
    # Their letters are hex digits: without this, one hex id in 60,000 would be Belgian.
    digits = value[:2] not in ("AE", "BA", "BE", "DE", "EE") or value[2:].isdigit()
    if len(value) < length or not digits or re.match("[0-9A-Za-z_]", match.string[end : end + 1]):
        return 0, ""
    rest = int("".join(str(int(char, 36)) for char in value[4:] + value[:4])) % 97
    return end, value if rest == 1 else ""


def _read_card(match: re.Match[str]) -> tuple[int, str]:
    # Behind four blocks of four, ` 123` may belong to the number or be its security code.
    for part in filter(None, (match[0], match["blocks"])):
        value = re.sub("[ -]", "", part)
        doubled = sum(int("0246813579"[int(digit)]) for digit in value[-2::-2])
        if len(value) < 20 and (sum(map(int, value[::-2])) + doubled) % 10 == 0:
            return match.start() + len(part), value
    return 0, ""


def _read_phone(match: re.Match[str]) -> tuple[int, str]:
    if match["rest"]:
        return max(_phone_ends(match), default=(False, 0, ""))[1:]
    trunk, digits = match["trunk"], re.sub("[^0-9]", "", match[0])
    return match.end(), {"1": "+1", "8": "+7"}[trunk] + digits[1:] if trunk else digits


def _phone_ends(match: re.Match[str]) -> Iterator[tuple[bool, int, str]]:
    """Yield each end *match* may have: is its length the country's, where, what number."""
    text, head, digits, before = match.string, match["head"], "", 0
    abroad = "+" in head or "00" in head
    least, most = ((8 if "+" in head else 9), 15) if abroad else ((8 if head else 9), 12)
    if not head and _NO_PHONE.match(text, match.start()):
        return
    for count, group in enumerate(re.finditer("([^0-9]*)([0-9]+)", match["rest"])):
        gap, run, end = group[1], group[2], match.start("rest") + group.end()
        # ` - ` joins an area code, or parts two numbers; a count may follow the last long group.
        if (len(gap) == 3 and gap[0] == " " and len(digits) > 7) or (gap == " " and before > 5):
            return
        digits += "" if abroad and run == "0" and gap.endswith("(") else run
        before, text_so_far = len(run), text[match.start() : end]
        right = _COUNTRY_DIGITS.get(digits[0]) or _COUNTRY_DIGITS.get(digits[:2])
        fits = len(digits) == 11 if abroad and digits[0] in "17" else least <= len(digits) <= most
        apart = abroad or count > (1 if head and digits[0] != "0" else 0)
        whole = (before > 1 or gap == "-") and text_so_far.count("(") == text_so_far.count(")")
        # One dot alone is a decimal point: `+48.857700`.
        dots = (
            "(" in text_so_far
            or "." not in text_so_far
            or re.search(r"\.[0-9]+\.[0-9]", text_so_far)
        )
        if fits and apart and whole and dots and re.match(_PHONE_END, text[end : end + 4]):
            yield abroad and len(digits) == right, end, f"+{digits}" if abroad else digits


_FINDERS: dict[str, Callable[[str], Iterator[_Match]]] = {
    "email": _emails,
    "iban": lambda text: _numbers(text, _IBAN, _read_iban),
    "card": lambda text: _numbers(text, _CARD, _read_card),
    "phone": lambda text: _numbers(text, _PHONE, _read_phone),
}
