"""A query as Spark's own parser reads it: that it only reads, and which names it uses."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput
from headrace.spark.sql.failures import explained, quiet
from headrace.spark.sql.names import Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def parse(spark: "SparkSession", text: str) -> list[Name]:
    """The names of tables in a query, without those that it gives itself (WITH ... AS)."""
    from pyspark.errors import PySparkException

    quiet()
    state: Any = spark._jsparkSession.sessionState()
    try:
        plan = state.sqlParser().parsePlan(text)
    except PySparkException as error:
        raise explained(error) from error
    _refuse_changes(state, text)
    jvm: Any = spark._jvm
    plan = jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution.apply(plan)
    found = {}
    for part in (plan, *_items(plan.subqueriesAll())):
        for node in nodes_of(part):
            if (name := _name(node)) is not None:
                found[name.start] = name
    return [found[start] for start in sorted(found)]


def nodes_of(plan: Any) -> Iterator[Any]:
    """A plan's nodes, from the top."""
    yield plan
    for child in _items(plan.children()):
        yield from nodes_of(child)


def kind_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _refuse_changes(state: Any, text: str) -> None:
    """Only a query can stand in EXISTS. Statements have no common base class to look for."""
    from pyspark.errors import PySparkException

    try:
        state.sqlParser().parsePlan(f"SELECT EXISTS (\n{text}\n)")
    except PySparkException:
        raise BadInput(
            "this is no query: `headrace sql` only reads", hint="it begins with SELECT or WITH"
        ) from None


def _name(node: Any) -> Name | None:
    kind = kind_of(node)
    if kind == "ScriptTransformation":
        raise BadInput("TRANSFORM runs a program", hint="use functions of Spark SQL")
    if kind == "PlanWithUnresolvedIdentifier":
        raise BadInput("a name is computed by IDENTIFIER(...)", hint="write the name itself")
    if kind == "RelationTimeTravel":
        return _placed(node.relation(), past=True)
    return _placed(node) if kind == "UnresolvedRelation" else None


def _placed(relation: Any, *, past: bool = False) -> Name:
    at = relation.origin()
    parts = tuple(map(str, _items(relation.multipartIdentifier())))
    return Name(parts, at.startIndex().get(), at.stopIndex().get() + 1, past)


def _items(sequence: Any) -> Iterator[Any]:
    """Of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
