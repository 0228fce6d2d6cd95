"""Things in the user's own modules, named on the command line."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from headrace.errors import BadInput, HeadraceError

T = TypeVar("T")


def load_named(
    reference: str,
    kind: type[T] | tuple[type[T], ...],
    *,
    what: str,
    called: str,
    example: str,
    make: str,
) -> T:
    """What `MODULE:NAME` names; the current folder is looked in first.

    The other arguments say in a complaint what is asked for, what its class is called, and how to
    come by it.
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise BadInput(
            f"{reference!r} names no {what}",
            hint=f"give MODULE:{what.upper()}, for instance {example}",
        )
    module = _import(module_name)
    found = getattr(module, attribute, None)
    if isinstance(found, kind):
        return found
    others = [name for name, value in vars(module).items() if isinstance(value, kind)]
    problem = f"has no {attribute}"
    if found is not None:
        problem = f"{attribute} is no {called}"
    raise BadInput(
        f"{module_name}: {problem}",
        hint=f"there is {module_name}:{others[0]}" if others else f"make one: {make}",
    )


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise BadInput(
                f"there is no module {name}",
                hint=f"run it from the folder that holds {error.name.replace('.', '/')}.py",
            ) from error
        raise BadInput(
            f"{name} cannot be imported: {error}", hint="install what it imports"
        ) from error
    except HeadraceError:  # an option in it is wrong: it says so itself
        raise
    except Exception as error:
        raise BadInput(
            f"{name} cannot be imported: {type(error).__name__}: {error}",
            hint=f"see where: python -c 'import {name}'",
        ) from error
