"""attnctl: which attention backend runs on this machine, why, and whether it is right and fast.

Importing this package costs nothing: every public name is loaded on first use, and none of them
imports torch.
"""

from __future__ import annotations

import sys

# type checkers take it for true; the import of typing would come before main(), where
# nothing catches Control-C yet
TYPE_CHECKING = False

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnctl.decision import Decision as Decision
    from attnctl.layer import Options as Options
    from attnctl.machine import Machine as Machine
    from attnctl.model import read_model as read_model
    from attnctl.model.spec import ModelSpec as ModelSpec
    from attnctl.plans.opening import plan as plan
    from attnctl.probe import probe as probe
    from attnctl.profile.loading import load_profile as load_profile
    from attnctl.registry import load as load_registry
    from attnctl.runtime import open_backend as open_backend
    from attnctl.select import select as select
    from attnctl.select import select_model as select_model

# public name -> the module that defines it, and its name there where that is another
_HOMES = {
    "Decision": "attnctl.decision",
    "Machine": "attnctl.machine",
    "ModelSpec": "attnctl.model.spec",
    "Options": "attnctl.layer",
    "load_profile": "attnctl.profile.loading",
    "load_registry": "attnctl.registry:load",
    "open_backend": "attnctl.runtime",
    "plan": "attnctl.plans.opening",
    "probe": "attnctl.probe",
    "read_model": "attnctl.model",
    "select": "attnctl.select",
    "select_model": "attnctl.select",
}

__all__ = [
    "Decision",
    "Machine",
    "ModelSpec",
    "Options",
    "load_profile",
    "load_registry",
    "open_backend",
    "plan",
    "probe",
    "read_model",
    "select",
    "select_model",
]


class _Package(type(sys)):  # type: ignore[misc]
    """A package whose functions are not hidden by the submodules that bear their names."""

    def __setattr__(self, name: str, value: object) -> None:
        # the import system binds a submodule's name once it is loaded, attnctl.select among them
        if name not in _HOMES or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnctl' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
