"""Writes the lock files of src/headrace/local/locks anew: coordinates, SHA-256, bytes.

    python tools/lock_jars.py [kafka] [registry] [spark] [peers]

For maintainers, who change a version in ROOTS and need Maven on the PATH for this one step: Maven
itself resolves the closure, because other resolvers settle version conflicts differently.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

LOCKS = Path(__file__).parent.parent / "src" / "headrace" / "local" / "locks"
HEADER = "# coordinates  sha256  bytes (written by tools/lock_jars.py)\n"

# group:name:version[:classifier@extension]
ROOTS = {
    "kafka": [
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.apache.kafka:connect-file:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    ],
    "registry": ["io.apicurio:apicurio-registry-app:3.3.3:all@tar.gz"],
    # For PySpark 4.2.0, which brings everything else. The token provider and spark-avro lag
    # behind: these are the newest releases there are, and they work with 4.2.0.
    "spark": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
        "org.apache.spark:spark-avro_2.13:4.1.1",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
    ],
    # For `headrace bench consumer`: a Java consumer to compare with, and what compiles our program
    # that runs it. Its log goes nowhere.
    "peers": [
        "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3",
        "org.slf4j:slf4j-nop:2.0.13",
        "org.eclipse.jdt:ecj:3.42.0",
    ],
}
ALONE = {"registry", "spark"}  # without what they depend on: it is inside, or Spark has it

POM = """<project>
<modelVersion>4.0.0</modelVersion>
<groupId>headrace</groupId><artifactId>lock</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""


def dependency(root: str, alone: bool) -> str:
    coordinates, _, extension = root.partition("@")
    group, name, version, *classifier = coordinates.split(":")
    fields = (
        f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    )
    if classifier:
        fields += f"<classifier>{classifier[0]}</classifier><type>{extension}</type>"
    if alone:
        everything = "<groupId>*</groupId><artifactId>*</artifactId>"
        fields += f"<exclusions><exclusion>{everything}</exclusion></exclusions>"
    return f"<dependency>{fields}</dependency>"


def resolve(name: str, folder: Path) -> Path:
    """Lay the closure out like a Maven repository, and return its folder."""
    dependencies = "".join(dependency(root, name in ALONE) for root in ROOTS[name])
    (folder / "pom.xml").write_text(POM.format(dependencies=dependencies))
    subprocess.run(
        [
            *("mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"),
            *("-DincludeScope=runtime", "-DoutputDirectory=closure"),
            "-Dmdep.useRepositoryLayout=true",
        ],
        cwd=folder,
        check=True,
    )
    return folder / "closure"


def line(path: Path, repository: Path) -> str:
    *group, name, version, file = path.relative_to(repository).parts
    rest = file.removeprefix(f"{name}-{version}")
    classifier, _, extension = rest.removeprefix("-").partition(".")
    extra = f":{classifier}" if rest.startswith("-") else ""
    kind = "" if extension == "jar" else f"@{extension}"
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f"{'.'.join(group)}:{name}:{version}{extra}{kind} {digest} {len(content)}\n"


def main() -> None:
    for name in sys.argv[1:] or ROOTS:
        with tempfile.TemporaryDirectory() as folder:
            repository = resolve(name, Path(folder))
            files = [path for kind in ("*.jar", "*.tar.gz") for path in repository.rglob(kind)]
            lines = sorted(line(path, repository) for path in files)
        (LOCKS / f"{name}.lock").write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
