"""What the PII hasher finds, what it leaves alone, and what its tokens promise."""

import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory.model.validation import Json
from orbiter.memory.text.pii import PIIHasher, scrub

KEY = b"0123456789abcdef0123456789abcdef"
TOKEN = re.compile(r"\[(email|phone|card|iban):[0-9a-f]{20}\]")
hashed = PIIHasher(KEY, tenant="acme")

# One line for one value, in the ways people write it.
VARIANTS = {
    "email": [
        ["ann@example.com", "Ann@Example.COM", "ａｎｎ@ｅｘａｍｐｌｅ．ｃｏｍ"],
        ["o'brien+news@mail.example.co.uk", "O'Brien+News@mail.example.co.uk"],
        ["jörg@bücher.de", "JÖRG@BÜCHER.DE", "jo\u0308rg@bu\u0308cher.de"],
        ["иван@пример.рф", "Иван@Пример.РФ"],
        ["用户@例子.公司"],
        ["用户@example.com"],
        ["ann@xn--e1afmkfd.xn--p1ai"],
        ["विपिन@उदाहरण.भारत"],
        ["first_last%x@sub-domain.example.museum"],
    ],
    "phone": [
        ["+49 30 1234567", "+49301234567", "0049 30 1234567", "0049301234567", "+49 (0)30 1234567",
         "+49-30-1234567", "+49/30/1234567", "(+49) 30 1234567", "+49 (30) 123 45 67",
         "+49 30 / 1234567", "＋４９ ３０ １２３４５６７", "+49\u00a030\u00a01234567",
         "+49 30–1234567", "+٤٩ ٣٠ ١٢٣٤٥٦٧"],
        ["+1 415 555 2671", "+1 (415) 555-2671", "+14155552671", "001 415 555 2671",
         "1-415-555-2671", "1 (415) 555-2671", "+1.415.555.2671", "+1 (415) 555.2671"],
        ["(415) 555-2671", "415-555-2671", "415.555.2671", "415 555 2671", "(415)5552671"],
        ["01 23 45 67 89", "01.23.45.67.89", "01-23-45-67-89"],
        ["+33 1 23 45 67 89", "+33123456789", "+33 (0)1 23 45 67 89", "0033 1 23 45 67 89"],
        ["020 7946 0958", "(020) 7946 0958", "020-7946-0958"],
        ["030 1234567", "(030) 1234567", "030/1234567", "030 / 1234567", "030 - 1234567"],
        ["030 12345-0", "(030) 12345-0"],
        ["0170 12345678", "0170-12345678"],
        ["+7 495 123-45-67", "8 (495) 123-45-67", "8(495)123-45-67", "+7 (495) 123 45 67"],
        ["03-1234-5678", "(03) 1234-5678"],
        ["138 1234 5678", "138-1234-5678"],
        ["+86 138 1234 5678", "+8613812345678"],
        ["010-12345678", "(010) 12345678"],
        ["02-123-4567"],
        ["(11) 91234-5678"],
        ["+55 11 91234-5678", "+55 (11) 91234-5678"],
        ["+91 98765 43210", "+91-9876543210"],
        ["+354 555 1234"],
        ["08-123 456 78"],
    ],
    "card": [
        ["4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111",
         "４１１１　１１１１　１１１１　１１１１"],
        ["378282246310005", "3782 822463 10005"],
        ["30569309025904", "3056 930902 5904"],
        ["4222222222222", "4222 222 222 222"],
        ["5555555555554444", "5555 5555 5555 4444"],
        ["2223003122003222", "2223-0031-2200-3222"],
        ["6304000000000000000", "6304 0000 0000 0000 000"],
    ],
    "iban": [
        ["DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "de89 3704 0044 0532 0130 00",
         "DE89-3704-0044-0532-0130-00", "ＤＥ８９３７０４００４４０５３２０１３０００"],
        ["GB29NWBK60161331926819", "GB29 NWBK 6016 1331 9268 19", "gb29nwbk60161331926819"],
        ["NO9386011117947", "NO93 8601 1117 947"],
        ["AT611904300234573201", "AT61 1904 3002 3457 3201"],
        ["BE68539007547034", "BE68 5390 0754 7034"],
        ["MT84MALT011000012345MTLCAST001S", "MT84 MALT 0110 0001 2345 MTLC AST0 01S"],
        ["FR1420041010050500013M02606", "FR14 2004 1010 0505 0001 3M02 606"],
    ],
}  # fmt: skip
LINES = [(kind, line) for kind, lines in VARIANTS.items() for line in lines]
VALUES = [(kind, value) for kind, line in LINES for value in line]

NEGATIVES = (
    """
2026-11-15|2026-11-15T08:54:34Z|2026-11-15T08:54:34.374206+00:00|2026-11-15 08:54:34.374206
2026-11-15T08:54:34.374206+00:00-691c53533544bc1a|20261115T085434Z|20261115085434|2026/11/15 08:54
15.11.2026|01.02.2026 08:54|01.02.2026 12 Uhr|01/02/2026|01-02-2026 10 11|01/2026-12/2027|1.2.2026
1731660874|1731660874374|1731660874374206|1731660874374206123|08:54:34|0854|08.54|in 2026|1999-2026
192.168.100.200|10.0.0.1:8080|010.001.002.003|2001:db8::1|v1.22.333.4444|3.11.0rc1|0.12.345|12.0.1
$1,234,567.89|1.234.567,89 €|1 000 000 000|12 345 678|+1 000 000|+10 000 000|0.99|100%|¥12800
550e8400-e29b-41d4-a716-446655440000|01934567-8912-7123-8123-123456789012|deadbeefcafe0123456789
d41d8cd98f00b204e9800998ecf8427e|691c53533544bc1a|be22539007547abc|sha256:0123456789abcdef0123456789
12345678|order 00123456|0012345678|01701234567|4155552671|123456789012|000000000012345678
48.857700, 2.352200|+48.857700, +2.352200|+40.7128-074.0060/|-33.8688,151.2093|+48.8577012345
3.141592653589793|0.4111111111111111|6.02214076e23|1e-10|0x1F4|12 45 33 27 41 8 19 22 35 7
4111111111111112|4111 1111 1111 1112|9783161484100|978-3-16-148410-0|0-306-40615-2
DE88370400440532013000|AB12 3456 7890 1234|XX89370400440532013000|at 10 people came for 20 days
lodash@4.17.21|@ann|ann@|ann@localhost|a@b.c|user @ example.com|price@10.50|00:1A:2B:3C:4D:5E
UTC+01:00|GMT+0100|C++20|f(12) 3456|see (2019) 12345678|(1) 12345678|(12) 12345678|A4 80g 500|n+12
""".strip()
    .replace("\n", "|")
    .split("|")
)


def token_of(value: str) -> str:
    token = hashed(value)
    assert TOKEN.fullmatch(token), value
    return token


@each_row(("kind", "value"), VALUES)
def test_a_value_becomes_one_token_of_its_kind(kind: str, value: str) -> None:
    assert hashed(value).startswith(f"[{kind}:")
    assert TOKEN.fullmatch(hashed(value))


@each_row(("kind", "line"), LINES, ids=lambda part: part[0])
def test_one_value_has_one_token_however_it_is_written(kind: str, line: list[str]) -> None:
    assert len({token_of(value) for value in line}) == 1


ANN, CARD, IBAN = "ann@example.com", "4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"
# The same value, as programs, mails and people who hide it write it.
DISGUISES = {
    ANN: [
        "ann%40example.com", "ann%2540example%2Ecom", "ann&#64;example.com",
        "ann&commat;example&#x2e;com", r"ann\u0040example.com", "ann\ufe6bexample.com",
        "%61nn%EF%BC%A0example.com", "ann=\n@example.com", "a\u200bnn@exam\u200bple.com",
        "ann\u2060@\u2060example\u2060.com", "ann@exa\u00admple.com",
        "ann@\nexample.com", "ann@example.\n    com", "ann@example\r\n.com", "ann@exam\nple.com",
        "ann\n@example.com", "ann@\u200b\nexample.com", "ann@\n> example.com",
        "ann%40%0Aexample.com",
    ],
    "+49 30 1234567": ["%2B49%2030%201234567", "+49\u200b301234567", "+49&nbsp;30&nbsp;1234567"],
    CARD: ["4111%201111%201111%201111", "4111\u20601111\u20601111\u20601111",
           "4111 1111\n1111 1111"],
    IBAN: ["DE89%203704%200044%200532%200130%2000", "DE89 3704\u200b 0044 0532 0130 00",
           "DE89 3704 0044\n  0532 0130 00"],
}  # fmt: skip


@pytest.mark.parametrize("value", DISGUISES)
def test_a_value_that_is_encoded_hidden_or_broken_has_the_token_of_the_plain_one(
    value: str,
) -> None:
    token = token_of(value)

    for written in DISGUISES[value]:
        before, after = "see%20\u200b\n", ",%20\u200band 5\n%20more"
        assert hashed(f"{before}{written}{after}") == f"{before}{token}{after}", repr(written)


def test_an_escape_before_a_value_is_not_part_of_it() -> None:
    """In the JSON of a tool call, `\\n` stands before it."""
    assert hashed(r"hi\nann@example.com\n") == rf"hi\n{token_of(ANN)}\n"


def test_lines_that_are_not_one_value_stay_apart() -> None:
    for text in (
        "y = w@x\nself.bias = 1", "return x\n@app.get('/')\ndef f(): ...",
        "cache\n@pytest.fixture\n",
        "100% of 40 people & more; see \\new", "3311\n4521\n6011\n0000", "50%4 a&b;c",
    ):  # fmt: skip
        assert hashed(text) == text
    assert (
        hashed("ann@example.com\nbob@example.com")
        == f"{token_of(ANN)}\n{token_of('bob@example.com')}"
    )
    assert hashed("ann@example.com.\nthen go") == f"{token_of(ANN)}.\nthen go"


def test_two_values_have_two_tokens() -> None:
    assert len({token_of(line[0]) for _, line in LINES}) == len(LINES)


@each_row("text", NEGATIVES)
def test_a_number_that_is_nobodys_stays(text: str) -> None:
    assert hashed(text) == text
    assert hashed(f"({text}), {text}.") == f"({text}), {text}."


@each_row(
    "frame", ["{}", "call {} now", "<{}>", '"{}",', "({})", "tel:{};x", "电话：{}。谢谢",
              "联系{}谢谢", "まで{}へ", "a\n{}\nb", "**{}**", "{}, {}", "| {} | {} |",
              "ring {} 2 times", "{}!"],
)  # fmt: skip
@each_row(
    ("kind", "value"),
    [("email", "ann@example.com"), ("phone", "+49 30 1234567"), ("phone", "030 1234567"),
     ("phone", "(415) 555-2671"), ("card", "4111 1111 1111 1111"), ("card", "4111111111111111"),
     ("iban", "DE89 3704 0044 0532 0130 00"), ("iban", "AT61 1904 3002 3457 3201")],
)  # fmt: skip
def test_the_text_around_a_value_stays(kind: str, value: str, frame: str) -> None:
    text = frame.replace("{}", value)

    assert hashed(text) == frame.replace("{}", token_of(value))


def test_the_more_specific_kind_wins() -> None:
    text = (
        "4111-1111-1111-1111, DE89370400440532013000, 4111111111111111@example.com, +4930123456789"
    )

    assert TOKEN.findall(hashed(text)) == ["card", "iban", "email", "phone"]


def test_a_security_code_or_a_date_behind_a_card_is_not_part_of_it() -> None:
    card = token_of("4111111111111111")

    assert hashed("4111 1111 1111 1111 123") == f"{card} 123"
    assert hashed("4111111111111111,12/27") == f"{card},12/27"
    assert hashed("4111 1111 1111 1111 12/27") == f"{card} 12/27"


def test_two_numbers_in_a_row_are_two() -> None:
    first, second = token_of("02 123 4567"), token_of("03 123 4568")

    assert hashed("02 123 4567 - 03 123 4568") == f"{first} - {second}"
    assert hashed("02 123 4567, 03 123 4568") == f"{first}, {second}"
    assert hashed("+49301234567+49301234567") == token_of("+49301234567") * 2


def test_only_the_asked_kinds_are_found() -> None:
    only = PIIHasher(KEY, tenant="acme", kinds=("card",))

    assert (
        only("ann@example.com 4111111111111111")
        == f"ann@example.com {token_of('4111111111111111')}"
    )


def test_another_tenant_or_key_has_other_tokens() -> None:
    tokens = {
        PIIHasher(key, tenant=tenant)("ann@example.com")
        for key in (KEY, KEY[::-1], "a text of some length")
        for tenant in ("acme", "bolt", "acme ")
    }

    assert len(tokens) == 9


def test_a_token_is_the_documented_keyed_hash() -> None:
    digest = hmac.digest(KEY, b"email:4:acmeann@example.com", hashlib.sha256).hex()

    assert hashed("Ann@Example.com") == f"[email:{digest[:20]}]"
    assert PIIHasher(KEY.decode(), tenant="acme")("ann@example.com") == f"[email:{digest[:20]}]"


@each_row("key", [b"", "", b"short", "a" * 15, None, 32, bytearray(32)])
def test_there_is_no_token_without_a_key(key: bytes) -> None:
    with pytest.raises(ValueError, match=r"at least 16 bytes.*`secrets\.token_bytes\(32\)`"):
        PIIHasher(key, tenant="acme")


def test_a_hasher_needs_a_tenant_and_known_kinds() -> None:
    with pytest.raises(ValueError, match="`tenant` must not be empty"):
        PIIHasher(KEY, tenant="")
    with pytest.raises(ValueError, match="unknown kind `name`; give a tuple of `email`"):
        PIIHasher(KEY, tenant="acme", kinds=("email", "name"))
    with pytest.raises(ValueError, match="`kinds` must not be empty"):
        PIIHasher(KEY, tenant="acme", kinds=())


def test_the_key_shows_nowhere() -> None:
    shown = f"{hashed!r} {hashed} {vars(hashed)}"

    assert repr(hashed) == "PIIHasher(tenant='acme', kinds=('email', 'phone', 'card', 'iban'))"
    assert KEY.decode() not in shown
    assert KEY.hex() not in shown


def test_a_token_whose_digits_are_a_number_stays() -> None:
    text = "[email:ee382200221020145685] [phone:00493012345678901234] [card:4111111111111111abcd]"

    assert hashed("ee382200221020145685").startswith("[iban:")

    assert hashed(text) == text


# Pieces that meet in every possible way: where kinds, borders and tokens could disagree.
PIECES = st.sampled_from([*(value for _, value in VALUES), *NEGATIVES, *(" -./:+()@,x0_好9[]"),
                          "00", "123", " 12", "a.b", "[email:",
                          "%40", "%2", "\u200b", "\n", "=\n", "&#64;", r"\u0040", "com",
          hashed("ann@example.com")])  # fmt: skip
JUMBLE = st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join)
NUMERIC = st.text(alphabet="0123456789 -./()+@aDE", max_size=60)
# No letter that could join an address, no digit, no sign that could join a number.
AROUND = st.text(
    alphabet=st.characters(categories=["Ll", "Zs", "So"], max_codepoint=0x2FF), max_size=20
)


@given(JUMBLE | NUMERIC)
def test_a_second_pass_changes_nothing(text: str) -> None:
    once = hashed(text)

    assert hashed(once) == once


@given(JUMBLE | NUMERIC)
def test_tenants_agree_on_everything_but_the_tokens(text: str) -> None:
    ours, theirs = hashed(text), PIIHasher(KEY, tenant="bolt")(text)

    assert ours == PIIHasher(KEY, tenant="acme")(text)
    assert TOKEN.sub(r"\1", ours) == TOKEN.sub(r"\1", theirs)
    assert (ours == theirs) == (ours == text)


@given(
    st.text(alphabet=st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="@＠﹫&"))
)
def test_text_without_digits_or_at_signs_stays(text: str) -> None:
    assert hashed(text) == text


@given(AROUND, st.sampled_from(VALUES), AROUND)
def test_a_value_in_any_text_becomes_its_token_and_the_text_stays(
    before: str, value: tuple[str, str], after: str
) -> None:
    text = f"{before}: {value[1]}, {after}"

    assert hashed(text) == f"{before}: {token_of(value[1])}, {after}"


@pytest.mark.slow
@given(
    st.from_regex(
        r"[a-z][a-z0-9]{0,9}(\.[a-z0-9]{1,9})?@([a-z0-9]{1,9}\.){1,3}[a-z]{2,9}", fullmatch=True
    )
)
def test_any_address_is_found_whole(address: str) -> None:
    assert (
        hashed(f"谢谢{address}谢谢 {address.upper()}!")
        == f"谢谢{token_of(address)}谢谢 {token_of(address)}!"
    )


@given(st.integers(10**11, 10**18 - 1), st.sampled_from(["4", "51", "6"]))
def test_any_card_is_found_and_none_with_a_wrong_digit(number: int, network: str) -> None:
    digits = f"{network}{number}"[:18]
    body = [int(digit) for digit in digits]
    total = sum(d if i % 2 else sum(divmod(2 * d, 10)) for i, d in enumerate(reversed(body)))
    check = -total % 10

    assert hashed(f"{digits}{check}").startswith("[card:")
    assert hashed(f"{digits}{(check + 1) % 10}") == f"{digits}{(check + 1) % 10}"


HOSTILE = ["%40", "%25", "\u200b", "&#64;", "&a", "a@\n", "a@b\n", "=\n", "a\n", r"\n",
           "4111 1111\n", "1", "4", "0", "a", "好", "１", "(", "a@", "a.", "a@a.", "+1 1 1 1", " 1",
           "+1", "01 ",           "(12) ", "DE89 ", "4111 ", "[email:", "é好",
           "030 1234567 ", "ann@example.com "]  # fmt: skip


# It takes a second. Were the time to grow with the square of the text, it would take minutes.
@pytest.mark.slow
@pytest.mark.timeout(scaled(60))
@each_row("unit", HOSTILE)
def test_time_grows_with_the_text_only(unit: str) -> None:
    text = (unit * 250_000)[:250_000]

    assert len(hashed(text)) <= 3 * len(text)


@pytest.mark.slow
@pytest.mark.timeout(scaled(60))
def test_a_long_run_before_an_address_costs_no_more() -> None:
    text = "a" * 500_000 + "好" + "a" * 500_000 + "@example.com"

    assert TOKEN.search(hashed(text))


def test_scrub_reaches_every_string_but_no_key() -> None:
    card = token_of("4111111111111111")
    value: Json = {
        "ann@example.com": ["ann@example.com", {"deep": "pay 4111111111111111"}],
        "n": 4111111111111111, "f": 1.5, "t": True, "z": None,
    }  # fmt: skip

    assert scrub(value, hashed) == {
        "ann@example.com": [token_of("ann@example.com"), {"deep": f"pay {card}"}],
        "n": 4111111111111111, "f": 1.5, "t": True, "z": None,
    }  # fmt: skip


def test_scrub_returns_a_copy_and_takes_any_hook() -> None:
    value: dict[str, Json] = {"list": ["a"], "dict": {"b": "c"}}

    result = scrub(value, str.upper)

    assert result == {"list": ["A"], "dict": {"b": "C"}}
    assert value == {"list": ["a"], "dict": {"b": "c"}}
    same = scrub(value, str)
    assert isinstance(same, dict)
    assert same["list"] is not value["list"]
