"""Packages of extras are imported when needed, and missing ones are named with their remedy."""

import sys

import pytest

from laggard.models.optional import MissingPackageError, import_optional


def test_installed_package_is_imported():
    assert import_optional("json.decoder", "none").JSONDecoder


def test_missing_package_names_the_extra():
    with pytest.raises(
        MissingPackageError, match=r"absent_package .*'laggard\[vision\]'"
    ) as caught:
        import_optional("absent_package.part", "vision")
    assert caught.value.name == "absent_package"


def test_broken_package_keeps_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import absent_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as caught:
        import_optional("broken_package", "vision")
    assert not isinstance(caught.value, MissingPackageError)
    sys.modules.pop("broken_package", None)
