"""Tokens of an issuer: who they are, what is refused, and what happens when the issuer is away."""

import asyncio
import base64
import json
import logging
import re
import threading
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import asyncpg
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.server.conftest import Client, Served, until
from tests.servers.databases import postgres_server
from tests.stores.conftest import postgres_dsn
from tests.timing import HANG

from orbiter.memory import AgentMemory
from orbiter.memory.auth import KeyFile, OIDCSettings, TokenVerifier
from orbiter.memory.errors import AccessError, MemoryConnectionError, QueryError
from orbiter.memory.model.items import MemoryMetadata

__all__ = ["postgres_dsn", "postgres_server"]

AUDIENCE = "https://memory.example.com/mcp"
WRITE = "openid orbiter-memory:write"


class Issuer:
    """An issuer on loopback with keys of its own."""

    def __init__(self) -> None:
        self.signers: dict[str, Any] = {"one": rsa.generate_private_key(65537, 2048)}
        self.extra_keys: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.named: str | None = None
        self.lets_go = threading.Event()
        self.lets_go.set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.lets_go.wait(HANG)
                body = json.dumps(issuer.documents[self.path]).encode()
                with suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def documents(self) -> dict[str, Any]:
        keys = [
            {
                **_jwk(key),
                "kid": name,
                "use": "sig",
                "alg": _alg(key),
            }
            for name, key in self.signers.items()
        ]
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.named or self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [*self.extra_keys, *keys]},
        }

    def token(
        self,
        kid: str | None = "one",
        *,
        signer: Any = None,
        header: Mapping[str, object] = {},
        **claims: object,
    ) -> str:
        now = int(time.time())
        payload = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600,
            "scope": WRITE, **claims,
        }  # fmt: skip
        payload = {name: value for name, value in payload.items() if value is not None}
        key = signer or self.signers[kid or "one"]
        headers = {**header, **({"kid": kid} if kid else {})}
        return jwt.encode(payload, key, algorithm=_alg(key), headers=headers)

    def close(self) -> None:
        self.lets_go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _alg(key: Any) -> str:
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"


def _jwk(key: Any) -> dict[str, Any]:
    algorithm: Any = jwt.get_algorithm_by_name(_alg(key))
    made: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return made


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture
def settings(issuer: Issuer) -> OIDCSettings:
    return OIDCSettings(issuer.url, (AUDIENCE,), pause=0.0)


@pytest.fixture
async def tokens(settings: OIDCSettings) -> AsyncIterator[TokenVerifier]:
    made = TokenVerifier(settings)
    yield made
    await made.close()


async def test_a_token_is_its_user_with_the_highest_of_its_roles(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    scope = "orbiter-memory:read orbiter-memory:write email"
    found = await tokens.check(issuer.token(scope=scope))
    another = await tokens.check(issuer.token(sub="bob", scope=["x", "orbiter-memory:admin"]))

    assert found is not None
    assert another is not None
    assert (found.role, found.scope.user_id, found.name) == ("write", "ann", "ann")
    assert (another.role, another.scope.user_id, another.is_bound) == ("admin", "bob", True)
    assert found.key_id != another.key_id
    assert "ann" not in str(found.key_id)
    assert len(issuer.asked) == 2, "the keys are fetched once"


async def test_what_is_wrong_with_a_token_makes_it_none(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    now = int(time.time())
    good = issuer.token()
    head, body, signature = good.split(".")
    public = (
        issuer.signers["one"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    other = rsa.generate_private_key(65537, 2048)

    def forged(**header: object) -> str:
        text = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
        return f"{text}.{body}.{signature}"

    hmac_head = forged(alg="HS256", kid="one").split(".")[0]
    signed = jwt.get_algorithm_by_name("HS256").sign(f"{hmac_head}.{body}".encode(), public)
    confused = f"{hmac_head}.{body}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"

    wrong = {
        "another audience": issuer.token(aud="https://else.example.com"),
        "no audience": issuer.token(aud=None),
        "another issuer": issuer.token(iss="https://else.example.com"),
        "a longer issuer": issuer.token(iss=f"{issuer.url}/"),
        "no issuer": issuer.token(iss=None),
        "expired": issuer.token(exp=now - 120),
        "never expires": issuer.token(exp=None),
        "an end that is no time": issuer.token(exp=float("inf")),
        "an end beyond all years": issuer.token(exp=10**12),
        "an end beyond the calendar": issuer.token(exp=10**17),
        "not yet valid": issuer.token(nbf=now + 600),
        "made in the future": issuer.token(iat=now + 600),
        "unknown kid": issuer.token("two", signer=issuer.signers["one"]),
        "another's key": issuer.token(signer=other),
        "no user": issuer.token(sub=None),
        "an empty user": issuer.token(sub=""),
        "a user of NUL": issuer.token(sub="ann\0"),
        "half a surrogate pair": issuer.token(sub="ann\ud800"),
        "a user who is too long": issuer.token(sub="a" * 1_025),
        "a reserved name": issuer.token(sub="~orbiter:x"),
        "alg none": f"{forged(alg='none', kid='one').split('.')[0]}.{body}.",
        "alg NONE": forged(alg="NONE", kid="one"),
        "another algorithm of the key": forged(alg="RS512", kid="one"),
        "a public key as a secret": confused,
        "a kid that is no text": forged(alg="RS256", kid=["one"]),
        "a critical extension": forged(alg="RS256", kid="one", crit=["b64"], b64=False),
        "one that is signed": issuer.token(header={"crit": ["x"], "x": 1}),
        "a cut signature": good[:-4],
        "another body": f"{head}.{issuer.token(sub='bob').split('.')[1]}.{signature}",
        "too long": issuer.token(padding="x" * 20_000),
        "garbage": "a.b.c",
        "dots": "..",
        "not ASCII": "é.é.é",
    }

    accepted = [name for name, token in wrong.items() if await tokens.check(token) is not None]
    assert accepted == []
    assert await tokens.check(good) is not None


async def test_clocks_may_differ_a_little(issuer: Issuer, tokens: TokenVerifier) -> None:
    now = int(time.time())

    assert await tokens.check(issuer.token(exp=now - 20)) is not None
    assert await tokens.check(issuer.token(nbf=now + 20)) is not None


async def test_users_with_odd_characters_stay_apart(issuer: Issuer, tokens: TokenVerifier) -> None:
    odd = [
        "ann|x",
        "ann:x",
        "Ann",
        "ann ",
        "änn",
        "a/../b",
        "a'; --",
        "<b>",
        "ann@example.com",
        "{a}",
    ]

    found = [await tokens.check(issuer.token(sub=name)) for name in odd]

    assert [each.scope.user_id for each in found if each] == odd
    assert len({each.key_id for each in found if each}) == len(odd)


async def test_a_token_without_a_role_is_refused_unless_there_is_a_default(
    issuer: Issuer, tokens: TokenVerifier, settings: OIDCSettings
) -> None:
    for scope in (None, "openid", "write admin", "orbiter-memory:root", {"a": 1}, 7, ["admin"]):
        with pytest.raises(AccessError, match="orbiter-memory:read"):
            await tokens.check(issuer.token(scope=scope))

    mild = TokenVerifier(replace(settings, default_role="read"))
    found = await mild.check(issuer.token(scope=None))
    await mild.close()
    assert found is not None
    assert found.role == "read"


async def test_claims_of_other_names_and_inside_objects(
    issuer: Issuer, settings: OIDCSettings
) -> None:
    named = replace(settings, user_claim="email", role_claim="realm_access.roles")
    tokens = TokenVerifier(named)
    roles = {"roles": ["offline_access", "orbiter-memory:read"]}

    found = await tokens.check(
        issuer.token(email="ann@example.com", realm_access=roles, scope=None)
    )
    without = await tokens.check(issuer.token(realm_access=roles))
    await tokens.close()

    assert found is not None
    assert (found.scope.user_id, found.role) == ("ann@example.com", "read")
    assert without is None


async def test_a_new_signing_key_is_fetched_and_an_old_one_ends(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    old = issuer.token()
    assert await tokens.check(old) is not None

    issuer.signers = {"two": ec.generate_private_key(ec.SECP256R1())}
    new = issuer.token("two")

    assert await tokens.check(new) is not None
    assert await tokens.check(old) is None
    assert await tokens.check(issuer.token(None, signer=issuer.signers["two"])) is not None


@pytest.mark.parametrize("kid", ["one", None])
async def test_a_new_key_under_the_name_of_the_old_one_is_fetched(
    issuer: Issuer, settings: OIDCSettings, kid: str | None
) -> None:
    tokens = TokenVerifier(replace(settings, pause=0))
    old = issuer.token(kid)
    assert await tokens.check(old) is not None

    issuer.signers = {"one": rsa.generate_private_key(65537, 2048)}

    assert await tokens.check(issuer.token(kid)) is not None
    assert await tokens.check(old) is None
    await tokens.close()


async def test_many_forged_tokens_of_a_known_key_are_one_fetch(
    issuer: Issuer, settings: OIDCSettings
) -> None:
    tokens = TokenVerifier(replace(settings, pause=HANG))
    other = rsa.generate_private_key(65537, 2048)
    assert await tokens.check(issuer.token()) is not None
    tokens._tried_at = None  # as if the pause since the first fetch were over

    found = await asyncio.gather(*(tokens.check(issuer.token(signer=other)) for _ in range(20)))
    again = await asyncio.gather(*(tokens.check(issuer.token(signer=other)) for _ in range(20)))
    still = await tokens.check(issuer.token())
    await tokens.close()

    assert found == again == [None] * 20
    assert still is not None
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"] * 2


async def test_keys_that_are_symmetric_short_or_broken_are_left_out(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    short = rsa.generate_private_key(65537, 1024)
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    issuer.extra_keys = [
        {"kty": "oct", "kid": "secret", "k": secret, "alg": "HS256"},
        {**_jwk(short), "kid": "short"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "EC", "kid": "empty"},
    ]  # fmt: skip
    forged = jwt.encode({"sub": "ann"}, b"s" * 32, algorithm="HS256", headers={"kid": "secret"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of PyJWT say that it is short
        weak = issuer.token("short", signer=short)

    assert await tokens.check(issuer.token()) is not None
    assert await tokens.check(forged) is None
    assert await tokens.check(weak) is None


async def test_many_tokens_of_unknown_keys_are_one_fetch(
    issuer: Issuer, settings: OIDCSettings
) -> None:
    tokens = TokenVerifier(replace(settings, pause=HANG))
    unknown = [issuer.token(f"k{n}", signer=issuer.signers["one"]) for n in range(50)]

    found = await asyncio.gather(*map(tokens.check, [*unknown, issuer.token()]))
    again = await asyncio.gather(*map(tokens.check, unknown))
    await tokens.close()

    assert [each is not None for each in found] == [False] * 50 + [True]
    assert again == [None] * 50
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_an_issuer_that_hangs_delays_nobody_whose_key_is_known(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    known = issuer.token()
    assert await tokens.check(known) is not None
    issuer.lets_go.clear()

    waiting = asyncio.create_task(tokens.check(issuer.token("x", signer=issuer.signers["one"])))
    await until(lambda: len(issuer.asked) == 3)
    assert await tokens.check(known) is not None
    assert len(issuer.asked) == 3
    with pytest.raises(MemoryConnectionError, match="cannot be fetched"):
        await waiting


@pytest.mark.parametrize("named", ["https://else.example.com", None])
async def test_an_issuer_that_is_another_or_away_opens_nothing(
    issuer: Issuer, tokens: TokenVerifier, named: str | None
) -> None:
    token = issuer.token()
    issuer.named = named
    if named is None:
        issuer.signers = {}
        issuer.documents.clear()
        issuer.close()
    with pytest.raises(MemoryConnectionError, match="cannot be fetched") as refused:
        await tokens.check(token)

    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "audiences"),
    [("http://else.example.com", ("a",)), ("ftp://a", ("a",)), ("", ("a",)), ("https://", ("a",)),
     ("https://a.example.com", ()), ("https://a.example.com", ("",))],
)  # fmt: skip
def test_settings_that_are_not_safe_are_refused(url: str, audiences: tuple[str, ...]) -> None:
    with pytest.raises(QueryError):
        OIDCSettings(url, audiences)


async def test_a_server_takes_tokens_and_keys_and_keeps_tenants_apart(
    served: Served, client: Client, keys: KeyFile, issuer: Issuer, settings: OIDCSettings
) -> None:
    url = await served(keys=keys, oidc=settings)
    ann, bob = (client(url, issuer.token(sub=name)) for name in ("ann", "bob"))
    made = await ann.post("/v1/memories", json={"what": "Ann likes tea"})
    reader = client(url, issuer.token(scope="orbiter-memory:read"))
    key = client(url, keys.create(scope=MemoryMetadata(user_id="ann"), role="read")[1])

    assert made.status_code in (200, 201), made.text
    for http, count in ((ann, 1), (bob, 0), (reader, 1), (key, 1)):
        assert len((await http.get("/v1/memories")).json()["items"]) == count
    item = made.json()["id"]
    assert (await bob.get(f"/v1/memories/{item}")).status_code == 404
    assert (await bob.get("/v1/memories?user_id=ann")).status_code == 403
    assert (await reader.post("/v1/memories", json={"what": "x"})).status_code == 403
    assert (await ann.get("/metrics")).status_code == 403


async def test_what_is_refused_says_where_to_get_a_token_and_nothing_else(
    served: Served, client: Client, issuer: Issuer, settings: OIDCSettings,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    url = await served(oidc=settings, with_log=True)
    expired = issuer.token(exp=int(time.time()) - 600)
    unknown = issuer.token("x", signer=issuer.signers["one"])
    place = 'resource_metadata="https://memory.example.com/.well-known/oauth-protected-resource'

    answers = [
        await client(url, token).post("/mcp", json={})
        for token in (expired, unknown, "a.b.c", None)
    ]
    page = await client(url).get("/")
    poor = await client(url, issuer.token(scope=None)).get("/v1/memories")

    assert [each.status_code for each in (*answers, page, poor)] == [401] * 5 + [403]
    assert len({each.json()["detail"] for each in answers[:3]}) == 1
    for answer in answers:
        assert f'{place}/mcp"' in answer.headers["www-authenticate"]
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert 'error="invalid_token"' in answers[0].headers["www-authenticate"]
    assert "error" not in answers[3].headers["www-authenticate"]
    assert page.headers["www-authenticate"].startswith("Basic ")
    assert 'error="insufficient_scope"' in poor.headers["www-authenticate"]
    for token in (expired, unknown):
        assert token.split(".")[1] not in caplog.text + "".join(each.text for each in answers)


async def test_the_metadata_of_the_resource_needs_no_token(
    served: Served, client: Client, issuer: Issuer, settings: OIDCSettings
) -> None:
    url = await served(oidc=settings)
    plain = await served(oidc=replace(settings, audiences=("memory",)))
    without = await served()
    path = "/.well-known/oauth-protected-resource"

    found = (await client(url).get(f"{path}/mcp")).json()

    assert found["resource"] == AUDIENCE
    assert found["authorization_servers"] == [issuer.url]
    assert "orbiter-memory:write" in found["scopes_supported"]
    assert (await client(url).get(path)).json()["resource"] == "https://memory.example.com"
    assert (await client(plain).get(path)).json()["resource"] == plain
    assert (await client(url).get(f"{path}/else")).status_code == 401
    assert (await client(url).post(path)).status_code == 401
    assert (await client(url).get(path, headers={"Host": "evil"})).status_code == 421
    assert (await client(without).get(path)).status_code == 404


async def test_an_issuer_that_is_down_is_503_and_keys_go_on(
    served: Served, client: Client, keys: KeyFile, issuer: Issuer, settings: OIDCSettings
) -> None:
    token = issuer.token()
    issuer.close()
    key = keys.create(scope=MemoryMetadata(user_id="ann"), role="read")[1]
    url = await served(keys=keys, oidc=settings)

    answer = await client(url, token).get("/v1/memories")

    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert token not in answer.text
    assert (await client(url, key).get("/v1/memories")).status_code == 200
    assert (await client(url).get("/healthz")).status_code == 200


async def test_a_stream_ends_with_its_token(
    served: Served, client: Client, issuer: Issuer, settings: OIDCSettings
) -> None:
    url = await served(oidc=replace(settings, leeway=0.0))
    end = int((datetime.now(UTC) + timedelta(seconds=6)).timestamp())
    http = client(url, issuer.token(exp=end), timeout=httpx.Timeout(HANG))

    async with http.stream("GET", "/v1/events") as stream:
        assert stream.status_code == 200
        async with asyncio.timeout(HANG):
            async for _ in stream.aiter_lines():
                pass

    assert datetime.now(UTC).timestamp() >= end


async def test_a_page_of_one_server_can_be_used_with_another_over_one_postgres(
    served: Served, client: Client, issuer: Issuer, settings: OIDCSettings, postgres_dsn: str
) -> None:
    memories = [AgentMemory(postgres_dsn, embeddings=None, summaries=None) for _ in range(2)]
    ann, bob = issuer.token(), issuer.token(sub="bob")

    urls = await asyncio.gather(*(served(each, oidc=settings) for each in memories))

    for here, there in (urls, urls[::-1]):
        page = await client(here, ann).get("/", headers={"Accept": "text/html"})
        (secret,) = re.findall(r'name="orbiter-token" content="([^"]+)"', page.text)
        headers = {"X-Orbiter-Token": secret}
        answers = [
            await client(there, each).post("/ui/anything", headers=headers) for each in (ann, bob)
        ]
        assert [each.status_code for each in answers] == [404, 403]  # let in, and not


async def test_the_pages_of_memories_in_another_schema_have_a_secret_of_their_own(
    served: Served,
    issuer: Issuer,
    settings: OIDCSettings,
    postgres_dsn: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Several schemas are in the search path; a secret opens the pages of its memories alone."""
    secrets = []
    connection = await asyncpg.connect(postgres_dsn)
    try:
        for name in ("tenant", "stray"):
            await connection.execute(f"CREATE SCHEMA {name}")
        await connection.execute("CREATE TABLE stray.orbiter_secrets (name TEXT, secret BYTEA)")
        start = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}search_path="
        async with AgentMemory(f"{start}tenant,public", embeddings=None, summaries=None):
            pass  # its tables are in `tenant`
        for path in ("public", "tenant,public", "public", "tenant,public", "stray,public"):
            await served(AgentMemory(start + path, embeddings=None, summaries=None), oidc=settings)
            secrets.append(served.app.state.orbiter.link.secret)  # type: ignore[attr-defined]
        rows = await connection.fetch(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'orbiter_secrets' ORDER BY 1"
        )
        strays = await connection.fetch("TABLE stray.orbiter_secrets")
    finally:
        await connection.close()

    assert [row["schemaname"] for row in rows] == ["public", "stray", "tenant"]
    assert secrets[:2] == secrets[2:4]
    assert len(set(secrets)) == 3
    assert strays == []
    assert "`stray.orbiter_secrets` is not for the memories in the schema `public`" in caplog.text
