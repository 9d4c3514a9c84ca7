"""How the modules that bring a library are tried, and what is said where none does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from attnctl.exits import AbsentError, InputError
from attnctl.kernels.libraries import loaded

FAULTS = {
    "absent": ModuleNotFoundError("no absent", name="absent"),
    "absent.part": ModuleNotFoundError("no absent", name="absent"),
    "broken": ImportError("undefined symbol", name="broken"),
    "needy": ModuleNotFoundError("no numpy", name="numpy"),
    "unlinked": OSError("cannot open shared object"),
}


def load(module: str) -> Any:
    if module in FAULTS:
        raise FAULTS[module]
    return SimpleNamespace(name=module, function=len)


def test_the_first_module_that_loads_is_taken() -> None:
    """Or what is asked for of it."""
    assert loaded("A", "Lib", load, "absent", "here", "there").name == "here"
    assert loaded("A", "Lib", load, "here", attribute="function") is len


def test_a_library_of_which_no_module_is_installed_is_absent() -> None:
    """Every module that was tried is named, with what came of it."""
    with pytest.raises(AbsentError) as error:
        loaded("A", "Lib", load, "absent", "absent.part")
    assert str(error.value) == (
        "A: Lib cannot be loaded: absent: no absent; absent.part: no absent. "
        "Install it, or take another backend"
    )


@pytest.mark.parametrize("module", ["broken", "needy", "unlinked", "here"])
def test_a_library_that_is_there_and_does_not_load_is_not_absent(module: str) -> None:
    """One module of it is broken, lacks another package, or has no such function."""
    with pytest.raises(InputError, match=rf"^A: Lib cannot be loaded: .*{module}") as error:
        loaded("A", "Lib", load, "absent", module, attribute="none")
    assert type(error.value) is InputError
