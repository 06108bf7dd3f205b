from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.kit.journal_store import JournalStore
from tests.rows import each_row

from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance


class TestJournal(StoreConformance):
    """A durable store of a third party passes, with one fixture and a recipe."""

    capabilities = Capabilities(shared=False, where=True)
    model_settings = settings(StoreConformance.model_settings, max_examples=15)

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[JournalStore]:
        store = JournalStore(str(tmp_path / "journal"))
        await store.init()
        yield store
        await store.close()

    def recipe(self, store: Any) -> Recipe:
        return Recipe("tests.kit.journal_store:JournalStore", (str(store._path),))


def test_a_contract_cannot_be_overridden() -> None:
    with pytest.raises(TypeError, match="`Mine.test_clear_removes_everything.*overrides"):

        class Mine(StoreConformance):
            async def test_clear_removes_everything_and_counts_it(self) -> None:  # type: ignore[override]
                """Look away."""


def test_a_contract_cannot_be_switched_off() -> None:
    with pytest.raises(TypeError, match="overrides a contract"):

        class Mine(StoreConformance):
            test_extra_never_filters = None  # type: ignore[assignment]  # the mistake under test


def test_a_mixin_cannot_override_a_contract_either() -> None:
    class Lenient:
        async def test_extra_never_filters(self) -> None:
            """Look away."""

    with pytest.raises(TypeError, match="`Mine.test_extra_never_filters` overrides a contract"):

        class Mine(Lenient, StoreConformance):  # type: ignore[misc]  # the mistake under test
            pass


def test_a_child_cannot_override_what_its_parent_inherited() -> None:
    class Parent(StoreConformance):
        capabilities = Capabilities(shared=False)

    with pytest.raises(TypeError, match="overrides a contract"):

        class Child(Parent):
            test_two_stores_on_the_same_data_agree = None  # type: ignore[assignment]  # likewise


def test_a_class_may_add_tests_of_its_own() -> None:
    class Mine(StoreConformance):
        async def test_something_more(self) -> None:
            """Fine."""


SIMPLE = Capabilities(durable=False, shared=False, lifecycle=False, batch=False)
DECLARABLE = (
    "test_kill_9_loses_nothing_acknowledged",
    "test_two_stores_on_the_same_data_agree",
    "test_a_closed_store_says_so",
    "test_add_many_keeps_all_or_none",
)


def _collected(cls: type[StoreConformance]) -> list[str]:
    return [name for name in DECLARABLE if callable(getattr(cls, name))]


def test_only_declared_capabilities_are_tested() -> None:
    class Simple(StoreConformance):
        capabilities = SIMPLE

    assert _collected(Simple) == []
    assert _collected(StoreConformance) == list(DECLARABLE)


def test_each_class_is_held_to_its_own_word_not_its_parents() -> None:
    class Simple(StoreConformance):
        capabilities = SIMPLE

    class Child(Simple):
        pass

    class Full(Child):
        capabilities = Capabilities()

    class SimpleAgain(Full):
        capabilities = SIMPLE

    assert [_collected(cls) for cls in (Child, Full, SimpleAgain)] == [[], list(DECLARABLE), []]


@each_row(
    "declared",
    [
        {"order": "neweest"},
        {"text": "sbstring"},
        {"durable": "yes"},
        {"scope": ("user",)},
        {"scope": ()},
        {"scope": ("session_id",)},
    ],
)
def test_a_misspelt_declaration_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(declared))):
        Capabilities(**declared)


@pytest.mark.parametrize(
    ("declared", "cure"),
    [
        ({"lifecycle": False, "shared": False}, "declare `durable=False`"),
        ({"lifecycle": False, "durable": False}, "declare `shared=False`"),
        ({"conversation": True}, "declare `order='oldest'`"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    declared: dict[str, Any], cure: str
) -> None:
    with pytest.raises(ValueError, match=f"contradicts.*{cure}"):
        Capabilities(**declared)


async def test_a_declaration_that_is_not_true_is_caught() -> None:
    class Boaster(StoreConformance):
        capabilities = Capabilities(order="oldest", conversation=True)

    with pytest.raises(AssertionError):
        await Boaster().test_the_store_has_what_it_declares_and_no_more(ShortTermMemory())


def test_a_missing_fixture_and_a_failing_contract_are_told_plainly(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from orbiter.memory.testing import Capabilities, StoreConformance
        from orbiter.memory.short_term import ShortTermMemory

        class TestNoFixture(StoreConformance):
            capabilities = Capabilities(lifecycle=False, durable=False, shared=False)

        class TestWrongOrder(StoreConformance):
            capabilities = Capabilities(lifecycle=False, durable=False, shared=False)

            @pytest.fixture
            def store(self):
                return ShortTermMemory()
        """
    )
    result = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=strict"),
        *("-vv", "-k", "order_is_by_instant"),
    )

    result.assert_outcomes(errors=1, failed=1)
    output = result.stdout.str()
    assert "`TestNoFixture` needs a `store` fixture" in output
    # Assertion rewriting reaches into the kit: both lists are shown.
    assert "['third', 'first', 'second', 'fourth', 'fifth'] ==" in " ".join(output.split())
