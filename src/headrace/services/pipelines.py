"""Pipelines by name: built in, or in the user's own modules."""

from headrace.errors import BadInput
from headrace.services.references import load_named
from headrace.spark.pipelines import CLICKSTREAM, Pipeline

BUILT_IN = {pipeline.name: pipeline for pipeline in (CLICKSTREAM,)}


def find_pipeline(reference: str) -> Pipeline:
    """A built-in pipeline by name, or the one that `MODULE:PIPELINE` names.

    >>> find_pipeline("clickstream").rows.name
    'events'
    """
    if reference in BUILT_IN:
        return BUILT_IN[reference]
    if ":" not in reference:
        raise BadInput(
            f"there is no pipeline {reference!r}",
            hint=f"built in: {', '.join(BUILT_IN)}; else give MODULE:PIPELINE, like shop:clicks",
        )
    return load_named(
        reference,
        Pipeline,
        what="pipeline",
        called="headrace.spark.pipelines.Pipeline",
        example="`headrace stream shop:clicks --lake lake --once` for clicks in shop.py",
        make="clicks = headrace.spark.pipelines.Pipeline(...)",
    )
