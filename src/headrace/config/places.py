"""The folders Headrace uses on this machine.

| what | variable | default |
| --- | --- | --- |
| data of local clusters | HEADRACE_HOME | $XDG_DATA_HOME/headrace, else ~/.local/share/headrace |
| fetched jars and archives | HEADRACE_CACHE | $XDG_CACHE_HOME/headrace, else ~/.cache/headrace |
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Places:
    """The two folders: `home` is yours to keep, `cache` can be fetched again."""

    home: Path
    cache: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        def place(variable: str, xdg: str, default: str) -> Path:
            if explicit := environment.get(variable):
                return Path(explicit).expanduser().absolute()
            if base := environment.get(xdg):
                return Path(base).expanduser().absolute() / "headrace"
            return Path.home() / default / "headrace"

        return cls(
            home=place("HEADRACE_HOME", "XDG_DATA_HOME", ".local/share"),
            cache=place("HEADRACE_CACHE", "XDG_CACHE_HOME", ".cache"),
        )

    @property
    def clusters(self) -> Path:
        """One folder per local cluster."""
        return self.home / "clusters"
