"""headrace.toml: what is wrong is named, and a secret is never in it and never shown."""

import traceback

import pytest

from headrace.config import find_profile_file, load_profile, read_profiles
from headrace.config.profiles import SECRET_SETTINGS, Profile
from headrace.errors import ConfigError

SECRET = "hunter2"
STAGING = """
default = "staging"
[profiles.staging]
bootstrap = "kafka-1:9093,kafka-2:9093"
registry = "http://registry:8081"
[profiles.staging.client]
"security.protocol" = "SASL_SSL"
"socket.timeout.ms" = 5000
"sasl.password" = { env = "PASSWORD" }
[profiles.other]
bootstrap = "other:9092"
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str):
        path = tmp_path / "work" / "headrace.toml"
        path.write_text(text)
        return path

    return write_file


def with_client(line: str) -> str:
    return f'[profiles.x]\nbootstrap = "b:1"\n[profiles.x.client]\n{line}\n'


def profile_with(write, line: str) -> Profile:
    return read_profiles(write(with_client(line))).profiles["x"]


def refused(write, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_profiles(write(text))
    return caught.value


# --- finding ---


def test_the_nearest_file_in_this_folder_or_above_is_taken(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "headrace.toml").write_text("")
    assert find_profile_file(inner) == tmp_path / "headrace.toml"
    (tmp_path / "a" / "headrace.toml").write_text("")
    assert find_profile_file(inner) == tmp_path / "a" / "headrace.toml"


def test_without_a_file_there_is_no_profile():
    assert find_profile_file() is None
    assert load_profile(None) is None
    assert load_profile("staging") is None


def test_a_named_profile_comes_before_the_default(write):
    write(STAGING)
    assert load_profile("other").bootstrap == "other:9092"
    assert load_profile(None).bootstrap == "kafka-1:9093,kafka-2:9093"


def test_the_only_profile_is_the_default(write):
    write('[profiles.one]\nbootstrap = "b:1"\n')
    assert load_profile(None).bootstrap == "b:1"


def test_of_several_profiles_none_is_the_default_unless_it_says_so(write):
    write('[profiles.a]\nbootstrap = "b:1"\n[profiles.b]\nbootstrap = "b:2"\n')
    assert load_profile(None) is None


def test_a_name_the_file_does_not_have_is_no_profile(write):
    write(STAGING)
    assert load_profile("nosuch") is None


def test_a_default_that_is_not_there_is_an_error_that_names_those_that_are(write):
    write('default = "x"\n[profiles.a]\nbootstrap = "b:1"\n')
    with pytest.raises(ConfigError, match="default is 'x'") as caught:
        load_profile(None)
    assert caught.value.hint == "known profiles: a"


# --- what is wrong is named ---


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("colour = 1", "colour"),
        ('[profiles.x]\nbootstrap = "b:1"\nboostrap = "typo"', "profiles.x.boostrap"),
        ('[profiles.x]\nregistry = "r"', "profiles.x.bootstrap"),
        ('[profiles.x]\nbootstrap = ""', "profiles.x.bootstrap"),
        ("[profiles.x]\nbootstrap = 5", "profiles.x.bootstrap"),
        (with_client('"sasl.password" = { env = "A", vault = "B" }'), "profiles.x.client"),
    ],
)
def test_an_unknown_or_wrong_setting_is_named_with_its_file(write, text, setting):
    error = refused(write, text)
    assert setting in error.message
    assert "headrace.toml" in error.message
    assert error.facts["setting"].startswith(setting)


@pytest.mark.parametrize("text", ["= 5", "[profiles", "a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_an_error_that_names_the_file(write, text):
    assert "headrace.toml cannot be read" in refused(write, text).message


def test_a_file_that_is_no_text_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "headrace.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_profiles(path)


# --- secrets ---


def test_a_secret_comes_from_the_environment(write):
    profile = profile_with(write, '"sasl.password" = { env = "PASSWORD" }')
    settings = profile.client_settings({"PASSWORD": SECRET})
    assert settings["sasl.password"].get_secret_value() == SECRET


def test_a_secret_comes_from_a_file_without_its_newline(write, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    profile = profile_with(write, f'"sasl.password" = {{ file = "{tmp_path}/secret" }}')
    assert profile.client_settings({})["sasl.password"].get_secret_value() == SECRET


def test_plain_settings_stay_as_they_are(write):
    profile = profile_with(write, '"socket.timeout.ms" = 5000\n"enable.x" = true\n"a" = "b"')
    assert profile.client_settings({}) == {"socket.timeout.ms": 5000, "enable.x": True, "a": "b"}


@pytest.mark.parametrize("setting", sorted(SECRET_SETTINGS))
def test_a_secret_in_plain_text_is_refused_without_showing_it(write, setting):
    profile = profile_with(write, f'"{setting}" = "{SECRET}"')
    with pytest.raises(ConfigError, match="plain text") as caught:
        profile.client_settings({})
    assert caught.value.facts == {"setting": setting}
    assert SECRET not in f"{caught.value.message} {caught.value.hint}"
    assert "env" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('{ env = "NOT_SET" }', "NOT_SET, which is not set"),
        ('{ file = "/nowhere/secret" }', "/nowhere/secret, which cannot be read"),
        ("{ }", "needs either env or file"),
        ('{ env = "A", file = "/b" }', "needs either env or file"),
    ],
)
def test_a_secret_that_cannot_be_had_is_an_error_that_says_why(write, source, complaint):
    profile = profile_with(write, f'"sasl.password" = {source}')
    with pytest.raises(ConfigError, match=complaint) as caught:
        profile.client_settings({})
    assert caught.value.facts == {"setting": "sasl.password"}


def test_a_secret_file_that_is_no_text_is_an_error(write, tmp_path):
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    profile = profile_with(write, f'"sasl.password" = {{ file = "{tmp_path}/secret" }}')
    with pytest.raises(ConfigError, match="cannot be read"):
        profile.client_settings({})


def test_neither_str_nor_repr_shows_a_secret(write):
    profile = profile_with(write, '"sasl.password" = { env = "PASSWORD" }')
    settings = profile.client_settings({"PASSWORD": SECRET})
    assert SECRET not in f"{profile} {profile!r} {settings} {settings!r}"
    assert SECRET not in str(profile.model_dump())


@pytest.mark.parametrize("line", [f'sasl.password = "{SECRET}"', f'"sasl.password" = ["{SECRET}"]'])
def test_a_misplaced_secret_does_not_show_even_in_a_traceback(write, line):
    error = refused(write, with_client(line))
    assert SECRET not in "".join(traceback.format_exception(error))
