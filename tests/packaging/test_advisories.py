"""No version that pyproject.toml admits has a published advisory, as far as is known."""

import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet
from tests.packaging.minimums import declared

KNOWN = tomllib.loads(Path(__file__).with_name("advisories.toml").read_text("utf-8"))


def test_no_lowest_version_has_an_advisory() -> None:
    affected = [
        f"{name}>={version} admits {advisory}"
        for name, version in declared()
        for advisory, versions in KNOWN["affected"].get(name, {}).items()
        if SpecifierSet(versions, prereleases=True).contains(version)
    ]

    assert affected == []


def test_advisories_were_looked_for_of_every_dependency() -> None:
    known = {*KNOWN["affected"], *KNOWN["without"]}

    assert {name for name, _ in declared()} - known == set()
