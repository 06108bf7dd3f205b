"""What calls return, as it crosses the wire: pages, versions, facts and their past, reports.

On the other side each is the same object again, with the methods and the texts that it has here.
"""

from typing import TYPE_CHECKING, Any

from orbiter.memory.wire._fact_codecs import dump_span, load_span, span_schema
from orbiter.memory.wire._item_codecs import FACT, ITEM
from orbiter.memory.wire._record_codecs import object_schema, record
from orbiter.memory.wire.codecs import (
    TEXT,
    WHOLE,
    Codec,
    enveloped,
    list_of,
    map_of,
    must_be_object,
    optional,
    tuple_of,
)

if TYPE_CHECKING:
    from orbiter.memory.agent.results import Forgotten, Page
    from orbiter.memory.model.facts import FactEntry

__all__ = [
    "AUDIT_ENTRY",
    "AUDIT_VERIFICATION",
    "CONFLICTS",
    "CONVERSATIONS",
    "COUNT",
    "DUPLICATES",
    "ENTRIES",
    "ERASURE",
    "EVENT",
    "EVICTED",
    "FACTS",
    "FACTS_BY_KEY",
    "FORGOTTEN",
    "ITEMS",
    "KEYS",
    "MESSAGES",
    "PAGE",
    "SCOPE_STATS",
    "STORE_STATS",
    "VERIFICATION",
    "VERSIONS",
]


_ITEMS = list_of(ITEM)
ITEMS = enveloped("items", _ITEMS)
FACTS = enveloped("facts", list_of(FACT))
FACTS_BY_KEY = enveloped("facts", map_of(FACT))
KEYS = enveloped("keys", list_of(TEXT))
COUNT = enveloped("count", WHOLE)
DUPLICATES = enveloped("groups", list_of(tuple_of(ITEM)))
VERSIONS = enveloped("versions", list_of(record("model.reports", "ItemVersion")))
CONVERSATIONS = enveloped("chats", list_of(record("model.reports", "ConversationInfo")))
STORE_STATS = record("model.reports", "StoreStats")
VERIFICATION = record("model.reports", "Verification")
SCOPE_STATS = record("agent.results", "ScopeStats")
EVENT = record("agent.results", "MemoryEvent")
EVICTED = record("agent.eviction", "Evicted")
ERASURE = record("model.reports", "Erasure")
AUDIT_ENTRY = record("model.audit", "AuditEntry")
AUDIT_VERIFICATION = record("model.audit", "AuditVerification")
CONFLICTS = enveloped("conflicts", list_of(record("model.facts", "FactConflict")))
MESSAGES = record("messages", "ProviderMessages")


# Pages, and what was forgotten


def _load_page(value: Any) -> "Page":
    from orbiter.memory.agent.results import Page  # noqa: PLC0415 - on first use

    given = must_be_object(value)
    return Page(_ITEMS.load(given["items"]), next=optional(TEXT).load(given.get("next")))


PAGE: Codec["Page"] = Codec(
    lambda page: {"items": _ITEMS.dump(page), "next": page.next},
    _load_page,
    lambda: object_schema("Page", items=_ITEMS.schema(), next={"type": ["string", "null"]}),
)


def _load_forgotten(value: Any) -> "Forgotten":
    from orbiter.memory.agent.results import Forgotten  # noqa: PLC0415 - on first use

    given = must_be_object(value)
    return Forgotten(tuple(_ITEMS.load(given["items"])), given["dry_run"])


FORGOTTEN: Codec["Forgotten"] = Codec(
    lambda gone: {"items": _ITEMS.dump(list(gone.items)), "dry_run": gone.dry_run},
    _load_forgotten,
    lambda: object_schema("Forgotten", items=_ITEMS.schema(), dry_run={"type": "boolean"}),
)


# Facts over time


def _dump_entry(entry: "FactEntry") -> dict[str, Any]:
    return {"fact": FACT.dump(entry.fact), "spans": [dump_span(span) for span in entry.spans]}


def _load_entry(value: Any) -> "FactEntry":
    from orbiter.memory.model.facts import FactEntry  # noqa: PLC0415 - few calls need it

    given = must_be_object(value)
    fact = FACT.load(given["fact"])
    return FactEntry(fact, tuple(load_span(span, fact) for span in given["spans"]))


def _entry_schema() -> dict[str, Any]:
    spans = {"type": "array", "items": span_schema()}
    return object_schema("FactEntry", fact=FACT.schema(), spans=spans)


ENTRIES = enveloped("entries", list_of(Codec(_dump_entry, _load_entry, _entry_schema)))
