"""Bugs in how stores let go of what is over."""

from tests.kit.bugs import Bug

SQL_EXPIRY_BUGS = {
    "what is over takes room": Bug(
        "what_is_over_takes_no_room",
        "        scope.append(dialect.none_expired())\n",
        "",
        (
            (
                "        return rows if after is None else rows[::-1]\n",
                (
                    "        rows = [row for row in rows if '2025' not in row[5]]\n"
                    "        return rows if after is None else rows[::-1]\n"
                ),
            ),
        ),
    ),
    "what was forgotten comes back after its end": Bug(
        "has_no_past_and_cannot_be_restored",
        'where += f" AND deleted = 1 AND {self._dialect.not_expired()}"',
        'where += " AND deleted = 1"',
    ),
    "what is over has a past": Bug(
        "has_no_past_and_cannot_be_restored",
        'FROM memory_items WHERE {it} AND {dialect.not_expired()}",\n        )\n        if not now',
        'FROM memory_items WHERE {it}",\n        )\n        if not now',
    ),
}
SHORT_TERM_EXPIRY_BUGS = {
    "ends are not noted when an item changes": Bug(
        "an_end_may_be_moved",
        "        self._expiry.note(item.id, item.expires_at)\n",
        "        if old is None:\n            self._expiry.note(item.id, item.expires_at)\n",
    ),
}
