"""Objects of providers' clients as plain dicts: nothing that the provider sent is lost."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from orbiter.memory.messages import as_plain


class Citation(BaseModel):
    cited_text: str
    document_title: str | None = None
    file_id: str | None = None
    type: Literal["char_location"] = "char_location"


class Text(BaseModel):
    text: str
    citations: list[Citation] | None = None
    parsed_output: Any = None
    type: Literal["text"] = "text"


class Ran(BaseModel):
    id: str
    code: str | None = None
    outputs: list[dict[str, Any]] | None = None
    caller: Any = Field(default=None)


def test_what_the_provider_sent_as_null_is_kept_and_what_it_did_not_send_is_not() -> None:
    ran = Ran.model_validate({"id": "ci_1", "code": None, "outputs": None})

    assert as_plain(ran) == {"id": "ci_1", "code": None, "outputs": None}


def test_a_null_inside_a_list_is_kept() -> None:
    sent = {
        "text": "Oslo.",
        "citations": [{"cited_text": "O.", "document_title": None, "type": "char_location"}],
        "type": "text",
    }

    assert as_plain([Text.model_validate(sent)]) == [sent]


def test_what_a_client_has_by_default_is_kept() -> None:
    assert as_plain(Text(text="Hi.")) == {"text": "Hi.", "type": "text"}


def test_what_a_client_parsed_is_not_kept() -> None:
    assert "parsed_output" not in as_plain(Text(text="{}", parsed_output={"a": 1}))
