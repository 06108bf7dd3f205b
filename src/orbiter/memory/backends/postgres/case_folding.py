"""Which texts need a case-folded copy, as ASCII's lower case does not fold them."""

__all__ = ["folded"]


def folded(content: str) -> str | None:
    """Return the case-folded text, unless ASCII's lower case is the same."""
    if content.isascii():
        return None
    text = content.casefold()
    # Bytes know no letters beyond ASCII.
    return None if text.encode() == content.encode().lower() else text
