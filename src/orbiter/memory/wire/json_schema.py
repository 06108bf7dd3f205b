"""JSON Schema as our documents have it."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

__all__ = ["WireSchema"]


class WireSchema(GenerateJsonSchema):
    """Pydantic's, without a title for each field, and with all fields that a server sends."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Say no: it would repeat the name of the field."""
        del schema
        return False

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of an object."""
        made = super().typed_dict_schema(schema)
        if getattr(schema.get("cls"), "is_sent_whole", False):
            made["required"] = list(made["properties"])
        return made
