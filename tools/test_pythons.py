"""Run the unit tests on every supported Python that this machine has.

    python tools/test_pythons.py             # all of them
    python tools/test_pythons.py --newest    # the newest one
    python tools/test_pythons.py 3.12 3.13   # these

Each gets an environment in .venvs/, made once from requirements.lock. Interpreters are looked for
on the PATH and among those of pyenv.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
UV = Path(sys.executable).with_name("uv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(SUPPORTED))
    parser.add_argument("--newest", action="store_true", help="only the newest one")
    given = parser.parse_args()
    if unknown := set(given.versions) - set(SUPPORTED):
        parser.error(f"expected some of {', '.join(SUPPORTED)}, got {', '.join(sorted(unknown))}")
    found = {v: path for v in given.versions or SUPPORTED if (path := find(v)) is not None}
    say(f"Pythons here: {', '.join(found) or 'none'} (of {', '.join(given.versions or SUPPORTED)})")
    if missing := set(given.versions) - set(found):
        parser.error(f"no Python {', '.join(sorted(missing))} was found; install it")
    chosen = list(found)[-1:] if given.newest else list(found)
    failed = [version for version in chosen if not passes(version, found[version])]
    for version in failed:
        say(f"failed on {version}; to run it again: make test-pythons PYTHONS={version}")
    return 1 if failed or not chosen else 0


def find(version: str) -> str | None:
    """An interpreter of this version that starts: pyenv's shims exist for those that do not."""
    return next((path for path in candidates(version) if is_version(path, version)), None)


def candidates(version: str) -> Iterator[str]:
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))


def is_version(path: str, version: str) -> bool:
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def passes(version: str, interpreter: str) -> bool:
    python = environment(version, interpreter)
    say(f"unit tests on Python {version}")
    command = [python, "-m", "pytest", "-q", "-n", "2", "tests/unit"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def environment(version: str, interpreter: str) -> str:
    """Made from the lock, unless it was made from this very lock before."""
    folder = ROOT / ".venvs" / version
    python, ready = folder / "bin" / "python", folder / ".lock"
    lock = ROOT / "requirements.lock"
    if not ready.exists() or ready.read_bytes() != lock.read_bytes():
        say(f"setting up {folder.relative_to(ROOT)} (once)")
        uv("venv", "--quiet", "--clear", "--python", interpreter, str(folder))
        install = ("pip", "install", "--quiet", "--python", str(python))
        uv(*install, "--require-hashes", "-r", str(lock))
        uv(*install, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        shutil.copyfile(lock, ready)
    return str(python)


def uv(*arguments: str) -> None:
    subprocess.run([UV, *arguments], cwd=ROOT, check=True)


def say(text: str) -> None:
    sys.stderr.write(f"==> {text}\n")


if __name__ == "__main__":
    sys.exit(main())
