"""Secrets in texts: published formats of tokens, and values that are assigned to a secret's name.

Pure and deterministic, and the time grows with the text only. A format is looked for where one of
its literals stands in the text, so an ordinary text costs some substring searches. A text that was
redacted once comes out of a second pass unchanged.

The formats are facts that their makers publish; each row has the source. `detect-secrets` (Apache
2.0) finds lines and no offsets, and brings an HTTP client; gitleaks (MIT) is a program in Go.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from orbiter.memory.text.decoded import read_decoded

__all__ = ["FORMATS", "SecretFormat", "kind_under", "redact_secrets"]


class SecretFormat(NamedTuple):
    """One published format of tokens; if the pattern has a group, only that is redacted."""

    name: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    source: str


_BEGIN = r"(?<![A-Za-z0-9_])"
_END = r"(?![A-Za-z0-9_])"


def _format(name: str, literals: str, pattern: str, source: str) -> SecretFormat:
    """Return a row for tokens that stand by themselves."""
    return SecretFormat(name, tuple(literals.split()), re.compile(f"{_BEGIN}(?:{pattern})"), source)


_PEM_BODY = r"(?:[^-]++|-(?!----))*+-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_CUT = r"(?:(?:\\[nr]|[\s\"'+>|])*+[A-Za-z0-9+/=]{40,})*"  # its end is missing

# Possessive quantifiers wherever a run may be long: nothing is read twice.
FORMATS: tuple[SecretFormat, ...] = (
    _format(
        "github token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[pousr]_[A-Za-z0-9_]{30,}+|github_pat_[A-Za-z0-9_]{22,}+",
        "docs.github.com/authentication/keeping-your-account-and-data-secure/"
        "about-authentication-to-github#githubs-token-formats",
    ),
    _format(
        "gitlab token",
        "glpat- gldt- glrt- glsoat- glptt- glft- glimt- glagent- gloas- glcbt-",
        r"gl(?:pat|dt|rt|soat|ptt|ft|imt|agent|oas|cbt)-[A-Za-z0-9_.-]{20,}+",
        "docs.gitlab.com/security/tokens/#token-prefixes",
    ),
    _format(
        "aws access key id",
        "AKIA ASIA ABIA ACCA",
        rf"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{{16}}{_END}",
        "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html",
    ),
    _format(
        "aws bedrock key",
        "ABSK bedrock-api-key-",
        r"ABSK[A-Za-z0-9+/]{60,}+=*|bedrock-api-key-[A-Za-z0-9+/=]{20,}+",
        "docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html",
    ),
    _format(
        "anthropic key",
        "sk-ant-",
        r"sk-ant-[A-Za-z0-9_-]{16,}+",
        "docs.anthropic.com/en/api/admin-api",
    ),
    _format(
        "openrouter key",
        "sk-or-",
        r"sk-or-(?:v\d-)?[A-Za-z0-9]{32,}+",
        "openrouter.ai/docs/api-reference/authentication",
    ),
    _format(
        "openai key",
        "sk-",
        r"sk-(?:proj|svcacct|admin|service|None)-[A-Za-z0-9_-]{16,}+|sk-[A-Za-z0-9]{32,}+",
        "platform.openai.com/docs/api-reference/authentication",
    ),
    _format(
        "google api key",
        "AIza AQ.Ab",
        r"AIza[A-Za-z0-9_-]{35}|AQ\.Ab[A-Za-z0-9_-]{30,}+",
        "cloud.google.com/docs/authentication/api-keys",
    ),
    _format(
        "google oauth secret",
        "GOCSPX- ya29. 1//0",
        r"GOCSPX-[A-Za-z0-9_-]{20,}+|ya29\.[A-Za-z0-9_.-]{20,}+|1//0[A-Za-z0-9_-]{30,}+",
        "developers.google.com/identity/protocols/oauth2",
    ),
    _format(
        "slack token",
        "xox xapp-",
        r"xox[abcdeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}+|xapp-\d-[A-Za-z0-9-]{10,}+",
        "docs.slack.dev/authentication/tokens",
    ),
    SecretFormat(
        "slack webhook",
        ("hooks.slack.com/",),
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/]{20,}+)"),
        "docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
    ),
    _format(
        "stripe key",
        "sk_ rk_ whsec_",
        r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,}+|whsec_[A-Za-z0-9+/=]{20,}+",
        "docs.stripe.com/keys",
    ),
    _format(
        "npm token",
        "npm_",
        r"npm_[A-Za-z0-9]{36,}+",
        "github.blog/2021-09-23-announcing-npms-new-access-token-format",
    ),
    _format(
        "pypi token",
        "pypi-AgE",
        r"pypi-AgE[A-Za-z0-9_-]{40,}+",
        "warehouse.pypa.io/development/token-scanning.html",
    ),
    _format(
        "rubygems key", "rubygems_", r"rubygems_[0-9a-f]{48}", "guides.rubygems.org/api-key-scopes"
    ),
    _format(
        "crates.io token",
        "cio",
        rf"cio[A-Za-z0-9]{{32}}{_END}",
        "doc.rust-lang.org/cargo/reference/registry-web-api.html",
    ),
    _format(
        "json web token",
        "eyJ",
        r"eyJ[A-Za-z0-9_-]{8,2000}+\.[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++){0,2}",
        "datatracker.ietf.org/doc/html/rfc7519",
    ),
    SecretFormat(
        "private key",
        ("PRIVATE KEY",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
            rf"(?:{_PEM_BODY}|{_PEM_CUT})"
        ),
        "datatracker.ietf.org/doc/html/rfc7468",
    ),
    _format(
        "age key",
        "AGE-SECRET-KEY-1",
        r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
        "github.com/C2SP/C2SP/blob/main/age.md",
    ),
    _format(
        "hugging face token",
        "hf_ api_org_",
        r"(?:hf_|api_org_)[A-Za-z0-9]{30,}+",
        "huggingface.co/docs/hub/security-tokens",
    ),
    _format("groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}+", "console.groq.com/docs/quickstart"),
    _format("xai key", "xai-", r"xai-[A-Za-z0-9]{60,}+", "docs.x.ai/docs/overview"),
    _format(
        "perplexity key",
        "pplx-",
        r"pplx-[A-Za-z0-9]{40,}+",
        "docs.perplexity.ai/guides/api-key-management",
    ),
    _format(
        "replicate token",
        "r8_",
        r"r8_[A-Za-z0-9]{37,}+",
        "replicate.com/docs/topics/security/api-tokens",
    ),
    _format(
        "pinecone key",
        "pcsk_",
        r"pcsk_[A-Za-z0-9_]{40,}+",
        "docs.pinecone.io/guides/projects/manage-api-keys",
    ),
    _format(
        "langsmith key",
        "lsv2_",
        r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}",
        "docs.langchain.com/langsmith/create-account-api-key",
    ),
    _format(
        "tavily key",
        "tvly-",
        r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{20,}+",
        "docs.tavily.com/documentation/quickstart",
    ),
    _format(
        "databricks token",
        "dapi",
        rf"dapi[0-9a-f]{{32}}(?:-\d)?{_END}",
        "docs.databricks.com/dev-tools/auth/pat.html",
    ),
    _format(
        "digitalocean token",
        "dop_v1_ doo_v1_ dor_v1_",
        r"do[opr]_v1_[0-9a-f]{64}",
        "docs.digitalocean.com/reference/api/create-personal-access-token",
    ),
    _format(
        "docker token",
        "dckr_",
        r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}+",
        "docs.docker.com/security/access-tokens",
    ),
    _format(
        "sendgrid key",
        "SG.",
        r"SG\.[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{30,}+",
        "www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys",
    ),
    _format("twilio key", "SK", rf"SK[0-9a-f]{{32}}{_END}", "www.twilio.com/docs/iam/api-keys"),
    _format(
        "mailgun key",
        "key-",
        rf"key-[0-9a-f]{{32}}{_END}",
        "documentation.mailgun.com/docs/mailgun/user-manual/api-key-mgmt",
    ),
    _format(
        "mailchimp key",
        "-us",
        rf"[0-9a-f]{{32}}-us\d{{1,2}}{_END}",
        "mailchimp.com/developer/marketing/guides/quick-start",
    ),
    _format(
        "resend key",
        "re_",
        rf"re_[A-Za-z0-9]{{8}}_[A-Za-z0-9]{{24}}{_END}",
        "resend.com/docs/dashboard/api-keys/introduction",
    ),
    _format(
        "shopify token",
        "shpat_ shpca_ shppa_ shpss_",
        r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
        "shopify.dev/docs/apps/build/authentication-authorization/access-tokens",
    ),
    _format(
        "square token",
        "sq0 EAAA",
        rf"sq0(?:atp|csp)-[A-Za-z0-9_-]{{22,43}}|EAAA[A-Za-z0-9_-]{{60}}{_END}",
        "developer.squareup.com/docs/build-basics/access-tokens",
    ),
    _format(
        "telegram bot token",
        ":AA",
        rf"\d{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_END}",
        "core.telegram.org/bots/api#authorizing-your-bot",
    ),
    _format(
        "discord bot token",
        "MT Mj Mz ND NT Nj Nz OD OT",
        rf"[MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,40}}{_END}",
        "discord.com/developers/docs/reference#authentication",
    ),
    SecretFormat(
        "discord webhook",
        ("/api/webhooks/",),
        re.compile(r"discord(?:app)?\.com/api/webhooks/\d+/([A-Za-z0-9_-]{30,}+)"),
        "discord.com/developers/docs/resources/webhook",
    ),
    _format(
        "vercel token",
        "vcp_ vci_ vca_ vcr_ vck_",
        r"vc[piark]_[A-Za-z0-9]{24,}+",
        "vercel.com/docs/rest-api#authentication",
    ),
    _format(
        "netlify token",
        "nfp_ nfc_ nfo_ nfu_ nfb_",
        r"nf[pcoub]_[A-Za-z0-9_-]{36,}+",
        "docs.netlify.com/api/get-started",
    ),
    _format(
        "fly.io token",
        "fm1_ fm2_ fm1r_ fm1a_",
        r"fm(?:2|1[ar]?)_[A-Za-z0-9+/=_-]{40,}+",
        "fly.io/docs/security/tokens",
    ),
    _format(
        "heroku key",
        "HRKU-",
        r"HRKU-[A-Za-z0-9_-]{36,}+",
        "devcenter.heroku.com/articles/authentication",
    ),
    _format("linear key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+", "linear.app/developers"),
    _format(
        "notion token",
        "ntn_ secret_",
        rf"ntn_[A-Za-z0-9]{{40,}}+|secret_[A-Za-z0-9]{{43}}{_END}",
        "developers.notion.com/docs/authorization",
    ),
    _format(
        "atlassian token",
        "ATATT3 ATCTT3 ATBB",
        r"AT[AC]TT3[A-Za-z0-9_=-]{50,}+|ATBB[A-Za-z0-9]{24,}+",
        "support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account",
    ),
    _format(
        "figma token",
        "figd_ figo_",
        r"fig[do]_[A-Za-z0-9_-]{36,}+",
        "developers.figma.com/docs/rest-api/authentication",
    ),
    _format("posthog key", "phx_ phs_", r"ph[xs]_[A-Za-z0-9_-]{36,}+", "posthog.com/docs/api"),
    _format(
        "sentry token",
        "sntrys_ sntryu_",
        r"sntry[su]_[A-Za-z0-9+/=_-]{40,}+",
        "docs.sentry.io/account/auth-tokens",
    ),
    _format(
        "new relic key",
        "NRAK-",
        r"NRAK-[A-Z0-9]{27}",
        "docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys",
    ),
    _format(
        "grafana token",
        "glc_ glsa_",
        r"glc_[A-Za-z0-9+/=]{32,}+|glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}",
        "grafana.com/docs/grafana/latest/administration/service-accounts",
    ),
    _format(
        "vault token",
        "hvs. hvb. hvr.",
        r"hv[sbr]\.[A-Za-z0-9_-]{24,}+",
        "developer.hashicorp.com/vault/docs/concepts/tokens",
    ),
    SecretFormat(
        "terraform token",
        (".atlasv1.",),
        re.compile(r"\b([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}+)"),
        "developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens",
    ),
    _format(
        "doppler token",
        "dp.",
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",
        "docs.doppler.com/reference/auth-token-formats",
    ),
    _format(
        "supabase key",
        "sbp_ sb_secret_",
        r"sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20,}+",
        "supabase.com/docs/guides/api/api-keys",
    ),
    _format(
        "planetscale token",
        "pscale_",
        r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}+",
        "planetscale.com/docs/concepts/service-tokens",
    ),
    _format(
        "airtable token",
        "pat",
        rf"pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}{_END}",
        "airtable.com/developers/web/guides/personal-access-tokens",
    ),
    _format(
        "hubspot token",
        "pat-",
        r"pat-(?:na|eu|ap)\d-[0-9a-f]{8}-[0-9a-f-]{27}",
        "developers.hubspot.com/docs/guides/apps/private-apps/overview",
    ),
    _format(
        "postman key",
        "PMAK-",
        r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        "learning.postman.com/docs/developer/postman-api/authentication",
    ),
    _format(
        "tailscale key",
        "tskey-",
        r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}+(?:-[A-Za-z0-9]{8,}+)?",
        "tailscale.com/kb/1085/auth-keys",
    ),
    _format(
        "1password token",
        "ops_eyJ",
        r"ops_eyJ[A-Za-z0-9+/=_-]{60,}+",
        "developer.1password.com/docs/service-accounts",
    ),
    _format(
        "dropbox token",
        "sl.",
        r"sl\.(?:u\.)?[A-Za-z0-9_-]{120,}+",
        "www.dropbox.com/developers/documentation/http/documentation",
    ),
    SecretFormat(
        "azure key",
        ("AccountKey=", "SharedAccessKey="),
        re.compile(r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,}+={0,2})"),
        "learn.microsoft.com/azure/storage/common/storage-configure-connection-string",
    ),
    SecretFormat(
        "azure signature",
        ("sig=",),
        re.compile(r"[?&]sig=([A-Za-z0-9%+/]{40,}+(?:%3D|=){0,2})"),
        "learn.microsoft.com/azure/storage/common/storage-sas-overview",
    ),
    _format(
        "azure client secret",
        "Q~",
        rf"[A-Za-z0-9_~.-]{{3}}\dQ~[A-Za-z0-9_~.-]{{31,34}}{_END}",
        "learn.microsoft.com/entra/identity-platform/quickstart-register-app",
    ),
    _format(
        "orbiter-memory key",
        "om_",
        r"om_[0-9a-f]{8}_[A-Za-z0-9_-]{43}",
        "the keys of this library's server",
    ),
    SecretFormat(
        "authorization header",
        ("uthorization", "UTHORIZATION", "earer "),
        re.compile(
            r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?i:basic|bearer|token)\s{1,3}([A-Za-z0-9._~+/-]{8,}+=*)"
            r"|\b[Bb]earer\s(?=[A-Za-z_.~+/-]*[0-9])([A-Za-z0-9._~+/-]{16,}+=*)"
        ),
        "datatracker.ietf.org/doc/html/rfc6750",
    ),
    SecretFormat(
        "password",
        ("://",),
        re.compile(
            r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/:@\"'<>]{0,100}:(?!//)([^\s/\"'<>\\]{1,200})@(?=[\w\[(-])"
        ),
        "datatracker.ietf.org/doc/html/rfc3986#section-3.2.1",
    ),
    SecretFormat(
        "password",
        ("curl ",),
        re.compile(
            r"\bcurl\s[^\n]{0,200}?(?<!\S)(?:-u|--user)[ =]?[\"']?[^\s:\"'\\]{1,100}:"
            r"([^\s\"'\\,;]{3,200})"
        ),
        "curl.se/docs/manpage.html#-u",
    ),
    SecretFormat(
        "password",
        ("machine ",),
        re.compile(
            r"\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}"
            r"([^\s\"'\\,;]{3,200})"
        ),
        "gnu.org/software/inetutils/manual/html_node/The-_002enetrc-file.html",
    ),
)
"""Published formats, the more specific before the more general."""

_LITERALS = [(literal, each) for each in FORMATS for literal in each.literals]

_IN_OTHER_LETTERS = "mot de passe|contrase\u00f1a|пароль|密码|密碼|パスワード"
"""Names of passwords of more than one word, or with letters beside those of `_WORDS`."""
_ASSIGNED = re.compile(
    r"(?P<before>--|[?&;])?(?<![A-Za-z0-9_])"
    rf"(?P<name>(?i:(?:api|access|private|secret) key|{_IN_OTHER_LETTERS})"
    r"|[A-Za-z][A-Za-z0-9_.-]{1,60}+)"
    r"(?:\\?(?P<key>[\"'`])|(?P<whose> (?:at|for|of|on|to)(?: [\w'-]{1,30}+){1,4}?))?"
    r"(?P<gap>[ \t]{0,3}(?:=>|:=|[:=：])[ \t]{0,3}"
    r"|[ \t]{1,3}(?P<says>is|was|ist|lautet|est|es)(?: now)?:?[ \t]{1,3}"
    r"|(?(whose)(?!)|[ \t]{1,3}))"
    r"(?:\\?(?P<mark>[\"'`])(?P<quoted>(?:(?!(?P=mark))[^\\\n]){1,300}+)"
    r"|(?P<bare>[^\s\"'`,;&<>(){}\[\]\\]{1,300}+))"
)
"""A name, and the value that it is given, is said to have, or is the option of a command for."""
_HINTS = (
    "pass", "pwd", "pw", "secret", "key", "token", "credential", "kennwort", "contrase", "senha",
    "wachtwoord", "пароль", "密码", "密碼", "パスワード"
)  # fmt: skip
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_KINDS = {
    **dict.fromkeys(("password", "passwd", "passphrase", "passcode", "pwd", "pass"), "password"),
    **dict.fromkeys(("pgpassword", "passwort", "kennwort", "contrasena", "senha"), "password"),
    **dict.fromkeys(("pw", "wachtwoord"), "password"),
    **dict.fromkeys(("secret", "clientsecret", "credential", "credentials"), "secret"),
    **dict.fromkeys(("token", "authtoken", "accesstoken"), "token"),
    **dict.fromkeys(("apikey", "secretkey", "accesskey", "privatekey"), "key"),
}
_KEYS = frozenset(
    ("access", "account", "api", "auth", "encryption", "master", "private", "secret", "service",
     "signing")
)  # fmt: skip
_NOT_SECRET = frozenset(
    ("arn", "bos", "cancellation", "continuation", "count", "csrf", "enable", "env", "eos",
     "expires", "expiry", "field", "file", "forgot", "forgotten", "has", "hash", "hint", "id",
     "is", "label", "length", "limit", "mask", "max", "min", "name", "next", "no", "num", "pad",
     "page", "path", "policy", "prefix", "public", "require", "required", "requires", "reset",
     "show", "stop", "ttl", "type", "unk", "uri", "url", "use", "version")
)  # fmt: skip
"""Words in a name by which it holds no secret: `token_count`, `PASSWORD_FILE`."""
_FOREIGN = re.compile(f"(?:{_IN_OTHER_LETTERS})$")
_WHOSE = re.compile(r"[ _](?:at|for|of|on|to)[ _]|[(\[]", re.IGNORECASE)
"""What begins to say whose a secret is: `password for the wifi`."""
_LOGINS = frozenset(
    ("admin", "db", "database", "email", "ftp", "login", "mail", "mysql", "redis", "root", "smtp",
     "ssh", "sudo", "user", "wifi")
)  # fmt: skip
"""Words by which a `pass` is a password; that of a test or of a proxy is none."""
_PLACEHOLDER = re.compile(
    r"[$%{<\[*.]|(?:_+|-+|…)$|.*?x{6,}|(?:https?|file)://|[./~]*/[a-z_./-]*$"
    r"|(?:any|bool|bytes|change|changeme|config|dummy|enter|env|example|false|field|getenv|hidden|input"
    r"|insert|int|masked|my|nil|none|null|optional|os|placeholder|process|prompt|redacted|removed"
    r"|replace|required|secretstr|self|settings|str|string|tbd|the|this|todo|true|undefined|your)"
    r"(?![a-z0-9])"
    r"|[a-z_-]*(?:key|pass|passwd|password|pwd|secret|token)s?[0-9]{0,3}$",
    re.IGNORECASE,
)
"""What stands for a value, such as `<token>`, `xxxxxxxx` or `my-slack-token`."""
_PLAIN = re.compile(r"[^\W_](?:[^\WA-Z_]|-)*")
"""A word, a number or several with hyphens; other capitals and `_` are in names of programs."""
_STATES = frozenset(
    ("changed", "correct", "default", "empty", "encrypted", "expired", "forgotten", "hashed",
     "incorrect", "invalid", "missing", "password", "protected", "unknown", "wrong")
)  # fmt: skip
"""Words that tell of a password, or stand where one is asked for."""
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
"""What a program calls a value, such as `req.body.token`."""
_MOST_BEHIND = 80


def kind_under(name: str, value: str) -> str | None:
    """Return what *value* is if all of it stands under *name*, a key, and that names a secret.

    Of a password, anything may be one, as there is no sentence around it.
    """
    kind = _kind_of(_WHOSE.split(name, maxsplit=1)[0].strip())
    if kind is None or not value.strip() or value.startswith(tuple("[<{*$%")):
        return None
    has_blank = re.search(r"\s", value.strip()) is not None
    if kind == "password":
        return kind if has_blank or not _PLACEHOLDER.match(value) else None
    if has_blank or _PLACEHOLDER.match(value) or _CODE.match(value):
        return None
    is_mixed = re.search(r"[A-Za-z]", value) and re.search(r"[0-9]", value)
    is_word = name.lower() == "token" and not is_mixed  # one of those that texts consist of
    return kind if len(value) >= (6 if is_mixed else 8) and not is_word else None


def redact_secrets(text: str) -> str:
    """Return *text* with `[redacted: github token]` and the like in place of each secret."""
    likely = dict.fromkeys([each for literal, each in _LITERALS if literal in text])
    lower = text.lower()
    has_names = any([hint in lower for hint in _HINTS])  # noqa: C419 - half the time
    if not likely and not has_names:
        return text
    reading = read_decoded(text)
    found: list[tuple[int, int, str]] = []
    for each in likely:
        for match in each.pattern.finditer(reading.text):
            start, end = match.span(match.lastindex or 0)
            if not _PLACEHOLDER.match(reading.text[start:end]):
                found.append((start, end, each.name))
    if has_names:
        found += _assigned(reading.text)
    parts, at = [], 0
    # Where two overlap, that which begins first counts, and of two the longer.
    for start, end, name in sorted(found, key=lambda each: (each[0], -each[1])):
        first, last = reading.starts[start], reading.ends[end - 1]
        if first >= at:
            parts += [text[at:first], f"[redacted: {name}]"]
            at = last
    return "".join([*parts, text[at:]])


def _assigned(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the value of a secret's name stands, and what it is."""
    at = 0
    while match := _ASSIGNED.search(text, at):
        at = match.end("name")  # what follows may be a name: `set password=…`
        kind = _kind_of(match["name"])
        if kind is None or not (match["gap"].strip() or match["before"] == "--"):
            continue
        group = "bare" if match["quoted"] is None else "quoted"
        start, end = match.span(group)
        value = match[group] if group == "quoted" else match[group].rstrip(".,:!?")
        is_call = group == "bare" and text[end : end + 1] in ("(", "[")
        if value and not is_call and _is_secret(value, kind, match):
            at = end
            yield start, start + len(value), kind


def _kind_of(name: str) -> str | None:
    """Return what a value of that *name* is, if it is a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not _NOT_SECRET.isdisjoint(words):
        return None
    if _FOREIGN.search(name.replace("_", " ").lower()):
        return "password"
    # What is set in the environment may have more behind it: `SECRET_KEY_BASE`.
    first = 1 if name.isupper() else max(1, len(words))
    for last in range(len(words), first - 1, -1):
        if words[last - 1] == "key" and last > 1 and words[last - 2] in _KEYS:
            return "key"
        kind = _KINDS.get(words[last - 1])
        if words[last - 1] == "pass" and (
            last == 1 or not (name.isupper() or words[last - 2] in _LOGINS)
        ):
            continue
        if kind is not None:
            return kind
    return None


def _is_secret(value: str, kind: str, match: re.Match[str]) -> bool:
    """Tell whether *value* may be what the name of *match* says; words of a sentence are not."""
    name, is_quoted = match["name"], match["quoted"] is not None
    if is_quoted and match["key"] is not None:  # JSON: nothing else is said there
        return kind_under(name, value) is not None
    is_other = len(value) < 4 or value.lower() == name.lower()
    if is_other or _PLACEHOLDER.match(value) or _CODE.match(value):
        return False
    if is_quoted and re.search(r"\s", value):
        is_given = kind == "password" and match["gap"].strip() == "="
        return is_given or "passphrase" in name.lower()
    is_option = match["before"] is not None or (match["gap"] == "=" and name.isupper())
    has_letter = re.search(r"[A-Za-z]", value) is not None
    is_mixed = has_letter and re.search(r"[0-9]", value) is not None
    if kind == "password":
        has_sign = has_letter and re.search(r"\w[!@#$%^&*?+~]", value) is not None
        is_clear = is_quoted or is_option or is_mixed or has_sign
        return is_clear or _stands_alone(value, match, least=6)
    if is_option:
        return len(value) >= 6
    least, entropy = (6, 0.0) if match["gap"] == "=" else (8, 0.0) if is_quoted else (12, 3.0)
    least, entropy = (least, entropy) if is_mixed else (20, 3.5)
    is_random = len(value) >= least and _entropy(value) >= entropy
    is_set = kind == "secret" and match["gap"] == "="
    return is_random or (is_set and _stands_alone(value, match, least=8))


def _stands_alone(value: str, match: re.Match[str], *, least: int) -> bool:
    """Tell whether a plain word is all that is said: `password: letmein` with nothing behind it."""
    if len(value) < least or match["says"] or value.lower() in _STATES:
        return False
    if not _PLAIN.fullmatch(value):
        return False
    behind = match.string[match.start("bare") + len(value) :][:_MOST_BEHIND]
    if match["gap"] == "=":
        return re.match(r"[.!]?(?:[\s;&]|$)", behind) is not None
    return ":" in match["gap"] and re.match(r"[.!]?[ \t]*(?:[\r\n]|$)", behind) is not None


def _entropy(value: str) -> float:
    """Return the entropy of the characters of *value* in bits for each.

    Words of English have less than 3 where they are as long as a token.
    """
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
