"""Named clusters in headrace.toml.

    default = "staging"
    database = "postgresql://shop@db/shop"    # of pipelines that read a table

    [profiles.staging]
    bootstrap = "kafka-1:9093,kafka-2:9093"
    registry = "http://registry:8081"

    [profiles.staging.client]                 # any librdkafka setting
    "security.protocol" = "SASL_SSL"
    "sasl.mechanism" = "SCRAM-SHA-512"
    "sasl.username" = "orders"
    "sasl.password" = { env = "ORDERS_PASSWORD" }      # or { file = "/run/secrets/orders" }

    [spark]
    master = "spark://host:7077"

    [spark.config]                            # any setting of Spark's
    "spark.executor.memory" = "4g"

A secret stands in the environment or in a file, never in headrace.toml itself.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from headrace.errors import ConfigError

FILE_NAME = "headrace.toml"

SECRET_SETTINGS = frozenset(
    {
        "sasl.password",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)


class SecretSource(BaseModel):
    """Where a secret is kept: one environment variable or one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    env: str | None = None
    file: Path | None = None

    def read(self, setting: str, environment: Mapping[str, str]) -> SecretStr:
        if (self.env is None) == (self.file is None):
            raise ConfigError(
                f"{setting} needs either env or file",
                hint=f'write "{setting}" = {{ env = "NAME" }}',
                setting=setting,
            )
        if self.env is not None:
            if self.env not in environment:
                raise ConfigError(
                    f"{setting} is to come from the variable {self.env}, which is not set",
                    hint=f"export {self.env} and run again",
                    setting=setting,
                )
            return SecretStr(environment[self.env])
        assert self.file is not None
        try:
            return SecretStr(self.file.expanduser().read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{setting} is to come from {self.file}, which cannot be read: {error}",
                hint="check the path and its permissions",
                setting=setting,
            ) from error


class Profile(BaseModel):
    """One cluster: where it is, and the client settings it asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bootstrap: str = Field(min_length=1)
    registry: str | None = None
    client: dict[str, str | int | float | bool | SecretSource] = Field(default_factory=dict)

    def client_settings(
        self, environment: Mapping[str, str] = os.environ
    ) -> dict[str, str | int | float | bool | SecretStr]:
        """The librdkafka settings, secrets fetched but still wrapped."""
        settings: dict[str, str | int | float | bool | SecretStr] = {}
        for name, value in self.client.items():
            if isinstance(value, SecretSource):
                settings[name] = value.read(name, environment)
            elif name in SECRET_SETTINGS:
                raise ConfigError(
                    f"{name} stands in {FILE_NAME} as plain text",
                    hint=f'write "{name}" = {{ env = "NAME" }} or {{ file = "PATH" }}',
                    setting=name,
                )
            else:
                settings[name] = value
        return settings


class SparkSection(BaseModel):
    """Where Spark runs, and its own settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    master: str | None = Field(default=None, min_length=1)
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """As Spark takes them: text, and true or false in small letters."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.config.items()
        }


class ProfileFile(BaseModel):
    """headrace.toml as a whole."""

    # A misplaced secret must not show up in what pydantic says about it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    default: str | None = None
    database: str | SecretSource | None = None
    profiles: dict[str, Profile] = Field(default_factory=dict)
    spark: SparkSection = SparkSection()


def find_profile_file(start: Path | None = None) -> Path | None:
    """headrace.toml in this folder or the nearest one above it."""
    folder = (start or Path.cwd()).absolute()
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    return None


def read_profiles(path: Path) -> ProfileFile:
    """Parse and check headrace.toml; every complaint names the file and the setting."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", hint="fix the file, or move it away", path=str(path)
        ) from error
    try:
        return ProfileFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"{path}: {setting}: {first['msg']}",
            hint="see `headrace.config.profiles` for the shape of the file",
            path=str(path),
            setting=setting,
        ) from error


def load_profile(name: str | None, start: Path | None = None) -> Profile | None:
    """The named profile, or the default one; None when no file or no default speaks of it."""
    path = find_profile_file(start)
    if path is None:
        return None
    file = read_profiles(path)
    wanted = name or file.default
    if wanted is None and len(file.profiles) == 1:
        wanted = next(iter(file.profiles))
    if wanted is None:
        return None
    if wanted in file.profiles:
        return file.profiles[wanted]
    if name is not None:
        return None
    raise ConfigError(
        f"{path}: default is {wanted!r}, but there is no [profiles.{wanted}]",
        hint=f"known profiles: {', '.join(sorted(file.profiles)) or 'none'}",
        path=str(path),
    )
