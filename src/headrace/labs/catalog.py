"""Which labs there are. A new lab is a new file; its name is the file's, with dashes."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import headrace.labs.scenes
from headrace.errors import BadInput
from headrace.labs.stage import Stage


@dataclass(frozen=True)
class Lab:
    """One promise and the code that acts it out."""

    name: str
    promise: str
    brokers: int
    needs_faults: bool
    run: Callable[[Stage], None]
    needs_registry: bool = False
    needs_connect: bool = False


def find_labs() -> list[Lab]:
    """All labs, by name."""
    found = pkgutil.iter_modules(headrace.labs.scenes.__path__)
    modules = [importlib.import_module(f"headrace.labs.scenes.{m.name}") for m in found]
    return sorted((_lab(module) for module in modules), key=lambda lab: lab.name)


def get_lab(name: str) -> Lab:
    labs = {lab.name: lab for lab in find_labs()}
    if name not in labs:
        raise BadInput(f"there is no lab {name!r}", hint=f"there are {', '.join(labs)}", lab=name)
    return labs[name]


def _lab(module: ModuleType) -> Lab:
    return Lab(
        name=module.__name__.rpartition(".")[2].replace("_", "-"),
        promise=(module.__doc__ or "").strip().partition("\n")[0],
        brokers=getattr(module, "BROKERS", 1),
        needs_faults=getattr(module, "NEEDS_FAULTS", False),
        run=module.run,
        needs_registry=getattr(module, "NEEDS_REGISTRY", False),
        needs_connect=getattr(module, "NEEDS_CONNECT", False),
    )
