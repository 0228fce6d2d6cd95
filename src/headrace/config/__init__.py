"""Where things are, and which cluster is meant: folders, headrace.toml, HEADRACE_* variables."""

from headrace.config.places import Places
from headrace.config.profiles import Profile, find_profile_file, load_profile, read_profiles

__all__ = ["Places", "Profile", "find_profile_file", "load_profile", "read_profiles"]
