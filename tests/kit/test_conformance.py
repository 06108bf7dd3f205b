from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.journal_store import JournalStore

from orbiter.memory.short_term import ShortTermMemory
from orbiter.memory.testing import Capabilities, Recipe, StoreConformance


class TestJournal(StoreConformance):
    """A durable store of a third party passes, with one fixture and a recipe."""

    capabilities = Capabilities(shared=False)

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


def test_a_class_may_add_tests_of_its_own() -> None:
    class Mine(StoreConformance):
        async def test_something_more(self) -> None:
            """Fine."""


def test_only_declared_capabilities_are_tested() -> None:
    class Simple(StoreConformance):
        capabilities = Capabilities(durable=False, lifecycle=False, batch=False)

    names = ["test_kill_9_loses_nothing_acknowledged", "test_add_many_keeps_all_or_none"]

    assert [getattr(Simple, name) for name in names] == [None, None]
    assert all(callable(getattr(StoreConformance, name)) for name in names)


@pytest.mark.parametrize(
    "declared",
    [{"order": "neweest"}, {"text": "sbstring"}, {"durable": "yes"}, {"scope": ("user",)}],
)
def test_a_misspelt_declaration_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(declared))):
        Capabilities(**declared)


async def test_a_declaration_that_is_not_true_is_caught() -> None:
    class Boaster(StoreConformance):
        capabilities = Capabilities(conversation=True, durable=False)

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
            capabilities = Capabilities(lifecycle=False, durable=False)

        class TestWrongOrder(StoreConformance):
            capabilities = Capabilities(lifecycle=False, durable=False, conversation=True)

            @pytest.fixture
            def store(self):
                return ShortTermMemory()
        """
    )
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-vv", "-k", "order_is_by_instant", "-o", "asyncio_mode=strict"
    )

    result.assert_outcomes(errors=1, failed=1)
    output = result.stdout.str()
    assert "`TestNoFixture` needs a `store` fixture" in output
    # Assertion rewriting reaches into the kit: both lists are shown.
    assert "['first', 'second', 'third', 'fourth', 'fifth'] ==" in " ".join(output.split())
