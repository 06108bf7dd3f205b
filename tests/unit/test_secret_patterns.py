"""Which secrets are found in texts, what stays, and what it costs."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each_row
from tests.timing import scaled

from orbiter.memory.text.secret_patterns import FORMATS, redact_secrets

DICE = random.Random(7)
LETTERS = string.ascii_letters + string.digits


def made(count: int, alphabet: str = LETTERS) -> str:
    """Return what looks like the random part of a token; none of these was ever issued."""
    return "".join(DICE.choice(alphabet) for _ in range(count))


def hexed(count: int) -> str:
    return made(count, "0123456789abcdef")


def pem(kind: str) -> str:
    body = "\n".join(made(64) for _ in range(4))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


# Put together when tests run: a scanner of this repository finds none.
TOKENS = {
    "github token": [f"gh{kind}_{made(36)}" for kind in "pousr"]
    + [f"github_pat_{made(22)}_{made(59)}"],
    "gitlab token": [f"glpat-{made(20)}"],
    "aws access key id": [f"AKIA{made(16, string.ascii_uppercase)}"],
    "anthropic key": [f"sk-ant-api03-{made(93)}AA"],
    "openrouter key": [f"sk-or-v1-{hexed(64)}"],
    "openai key": [f"sk-proj-{made(74)}", f"sk-svcacct-{made(40)}", f"sk-{made(48)}"],
    "google api key": [f"AIza{made(35)}"],
    "google oauth secret": [f"GOCSPX-{made(28)}", f"ya29.{made(60)}"],
    "slack token": [f"xoxb-{made(12, string.digits)}-{made(24)}", f"xapp-1-{made(30)}"],
    "slack webhook": [f"https://hooks.slack.com/services/T{made(8)}/B{made(8)}/{made(24)}"],
    "stripe key": [f"sk_live_{made(24)}", f"rk_test_{made(24)}", f"whsec_{made(32)}"],
    "npm token": [f"npm_{made(36)}"],
    "pypi token": [f"pypi-AgEIcHlwaS5vcmc{made(80)}"],
    "json web token": [f"eyJ{made(20)}.eyJ{made(60)}.{made(43)}"],
    "private key": [pem(""), pem("RSA "), pem("OPENSSH "), pem("EC ").replace("\n", r"\n")],
    "hugging face token": [f"hf_{made(34)}"],
    "groq key": [f"gsk_{made(52)}"],
    "xai key": [f"xai-{made(80)}"],
    "databricks token": [f"dapi{hexed(32)}"],
    "digitalocean token": [f"dop_v1_{hexed(64)}"],
    "docker token": [f"dckr_pat_{made(27)}"],
    "sendgrid key": [f"SG.{made(22)}.{made(43)}"],
    "twilio key": [f"SK{hexed(32)}"],
    "mailchimp key": [f"{hexed(32)}-us12"],
    "shopify token": [f"shpat_{hexed(32)}"],
    "telegram bot token": [f"{made(10, '123456789')}:AA{made(33)}"],
    "discord bot token": [f"MT{made(24)}.{made(6)}.{made(38)}"],
    "linear key": [f"lin_api_{made(40)}"],
    "notion token": [f"ntn_{made(46)}"],
    "atlassian token": [f"ATATT3{made(180)}"],
    "figma token": [f"figd_{made(40)}"],
    "grafana token": [f"glsa_{made(32)}_{hexed(8)}"],
    "vault token": [f"hvs.{made(90)}"],
    "supabase key": [f"sbp_{hexed(40)}"],
    "tailscale key": [f"tskey-auth-{made(17)}-{made(32)}"],
    "azure key": [f"DefaultEndpointsProtocol=https;AccountKey={made(86)}=="],
    "orbiter-memory key": [f"om_{hexed(8)}_{made(43)}"],
    "authorization header": [f"Authorization: Basic {made(24)}=", f"Bearer {made(40)}"],
    "password": [
        "postgresql://ann:s3cr%40t@db/x",
        "redis://:hunter2@h:6379/0",
        "curl https://h.test/x -u ann:hunter2",
        "machine h.test login ann password hunter2",
    ],
}
ASSIGNED = [
    "password=hunter2", "Password: hunter2", 'password = "hunter2"', "DB_PASSWORD=letmein",
    "db.password=s3cret!", "--password hunter2", "pwd: Tr0ub4dor&3", '{"password": "letmein"}',
    r'{\"password\": \"hunter2\"}', "Server=db;User Id=sa;Password=letmein;", "passphrase: x7y8z9",
    f"AWS_SECRET_ACCESS_KEY={made(40)}", f"aws_secret_access_key = {made(40)}",
    f'"secretAccessKey": "{made(40)}"', "SECRET_KEY=django-insecure-8x", f"token: {made(24)}",
    f'api_key="{made(16)}"', f"x-api-key: {made(32)}", f"OPENAI_API_KEY={made(20)}",
    f"https://h/x?token={made(12)}&user=bob", f"client_secret: {made(30)}",
    "export API_TOKEN=abc123", "PGPASSWORD=hunter2 psql -h db", "Passwort: hunter2",
    "my password is hunter2", "My password is now: hunter2.", "the wifi password is 'hunter2'",
    "The password for the wifi is hunter2", "mein Passwort ist hunter2",
    "the API key is 9f8e7d6c5b4a", "password=letmein", "password: letmein", "- Password: letmein.",
    "my password: correct-horse-battery", 'password="letmein in now"',
    "password='it is \"letmein\"'", "secret=letmeinabc", "pw: hunter2", "PW: letmein",
    "password: 12345678", "api key = 9f8e7d6c5b4a", "API key: 9f8e7d6c5b4a",
    "access token: 9f8e7d6c5b4a", '{"access_token": "abcdefabcdef"}',
    '{"password": "letmein in now"}', '{"client_secret": "abcdefabcdef"}',
    "mot de passe: soleil99", "Mot de passe : soleil99", "contraseña: hunter2", "пароль: hunter2",
    "密码：hunter2", "db.password=letmein&user=bob", "mot_de_passe=soleil99",
]  # fmt: skip
VALUES = ("hunter2", "letmein", "s3cret", "Tr0ub4dor", "abc123", "abcdef", "9f8e", "soleil99")
ORDINARY = """
My password is somewhere in the drawer|Password: required|The secret: be kind|token_count: 4096
max_tokens=4096|password = getpass()|password = hashlib.sha256(raw).hexdigest()|password=password
api_key = os.environ["API_KEY"]|api_key: ${API_KEY}|token: string|secret: <your secret here>
Authorization: Bearer <token>|Bearer tokens are sent in a header|https://h.test/a:b@c|ann@example.com
postgresql://ann:${PASSWORD}@db/x|sk-learn and scikit-learn|the key: practice every day|key: value
public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5|password_file=/run/secrets/db|{"password": "****"}
SHA d41d8cd98f00b204e9800998ecf8427e|0192f0c1-2b3a-7c4d-8e5f-60718293a4b5|primary_key=user_id_2024
curl -u for a user, as in the manual: -u name|the machine is slow, login and password below
password: see the wiki|the password is wrong|My password is required|The password is case-sensitive
The password is at least 8 characters long|password: string, 12 to 72 characters
Password is 8-20 letters|login(user=user, password=letters)|connect(password=value, host=host)
password=secret_value, token=tok)|password: at home|the password is the name of my dog
is my password safe?|Passwords: three ways to choose|Username and password: enter both below
{"password": {"type": "string"}}|{"token": "understanding"}|The key is practice
token: understanding|my secret is cinnamon|The secret: cinnamon|secret = cinnamon rolls
Password: incorrect|Password: unknown|forgot password: click here|Password: expired.
{"password": "<at least 8 characters>"}|the pass is 1200m high|a bus pass: 49 euros
api key: see 1Password
How do I reset my password: step 1, open the menu|const token = await getToken()|re_read_the_text
""".strip().replace("\n", "|").split("|")  # fmt: skip


@each_row("name", TOKENS)
def test_a_token_of_a_published_format_is_redacted(name: str) -> None:
    for token in TOKENS[name]:
        for text in (token, f"it is {token}, ok?", f"KEY={token}\nmore", rf'{{"a": "x\n{token}"}}'):
            new = redact_secrets(text)
            assert f"[redacted: {name}]" in new, (text, new)
            assert "@" in token or token[-12:] not in new
            assert redact_secrets(new) == new
    assert name in {each.name for each in FORMATS}


def test_every_format_says_where_it_is_published_and_can_be_looked_for() -> None:
    assert len({each.name for each in FORMATS}) >= 40
    for each in FORMATS:
        assert each.source
        assert each.literals


@each_row("text", ASSIGNED)
def test_what_is_assigned_to_the_name_of_a_secret_is_redacted(text: str) -> None:
    new = redact_secrets(f"first {text}\nthen")

    assert "[redacted: " in new
    assert new.startswith(("first ", "first {"))
    assert new.endswith("\nthen")
    assert not any(value in new for value in VALUES)
    assert redact_secrets(new) == new


@each_row("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_secrets(text) == text


def test_the_rest_of_a_text_stays_as_it_is() -> None:
    token = TOKENS["github token"][0]

    assert redact_secrets(f"«{token}» é%20 – {token}.") == (
        "«[redacted: github token]» é%20 – [redacted: github token]."
    )
    assert redact_secrets("postgresql://ann:hunter2@db/x?a=%20") == (
        "postgresql://ann:[redacted: password]@db/x?a=%20"
    )


PIECES = [each for tokens in TOKENS.values() for each in tokens] + ASSIGNED + ORDINARY


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=5).map(" ".join))
def test_a_second_pass_changes_nothing(text: str) -> None:
    once = redact_secrets(text)

    assert redact_secrets(once) == once


HOSTILE = ["password for a ", "password is ", "api key ", "mot de passe : ", 'password="a ',
           "пароль: a",
           "-eyJ", "eyJa.", "sk-", "ghp_a", "-----BEGIN PRIVATE KEY-----", "password=", "a:",
           "key: a ", "token:'", "https://a:", "://", "Bearer a", "password-", "%40pass=", "MTa.",
           "A" * 40 + " key=", "curl -u ", "machine a login ", "xoxb-1-",
           "-----BEGIN PRIVATE KEY-----\n" + "a" * 64]  # fmt: skip


# It takes seconds at most. Were the time to grow with the square, it would take hours.
@pytest.mark.slow
@pytest.mark.timeout(scaled(60))
@each_row("unit", HOSTILE)
def test_time_grows_with_the_text_only(unit: str) -> None:
    redact_secrets((unit * 250_000)[:250_000])
