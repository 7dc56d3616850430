"""Dirigo: stateful stream functions that scale one message at a time.

Everything that a user writes with is a name of this package: ``import dirigo as dg``. They are listed in ``_public``, which
is loaded when the first of them is used, so that a tool which needs the kernel alone does not load Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from dirigo._public import *  # noqa: F403
    from dirigo._public import __all__ as __all__
else:  # or a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'dirigo' has no attribute '{name}'")
        from dirigo import _public

        if name == "__all__" or name in _public.__all__:
            return getattr(_public, name)
        from dirigo.flow.rows.schema import did_you_mean

        raise AttributeError(f"module 'dirigo' has no attribute '{name}'{did_you_mean(name, _public.__all__)}")

    def __dir__() -> list[str]:
        from dirigo import _public

        return sorted({*(name for name in globals() if name.startswith("__")), *_public.__all__})
