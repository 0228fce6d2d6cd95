"""Pipelines by name: built in, or in the user's own modules."""

from headrace.errors import BadInput
from headrace.services.references import load_named
from headrace.spark.pipelines import CLICKSTREAM, FACTORY, INVOICES, Forward, Pipeline

BUILT_IN = {pipeline.name: pipeline for pipeline in (CLICKSTREAM, FACTORY)}
TO_TOPICS = {forward.name: forward for forward in (INVOICES,)}


def find_pipeline(reference: str) -> Pipeline:
    """A built-in pipeline to tables by name, or the one that `MODULE:PIPELINE` names.

    >>> find_pipeline("clickstream").rows.name
    'events'
    """
    found = find_streamed(reference)
    if not isinstance(found, Pipeline):
        raise BadInput(
            f"pipeline {found.name} goes to topic {found.to}, not to tables",
            hint="this needs a headrace.spark.pipelines.Pipeline",
        )
    return found


def find_streamed(reference: str) -> Pipeline | Forward:
    """The same, or one to a topic."""
    known: dict[str, Pipeline | Forward] = {**BUILT_IN, **TO_TOPICS}
    if reference in known:
        return known[reference]
    if ":" not in reference:
        raise BadInput(
            f"there is no pipeline {reference!r}",
            hint=f"built in: {', '.join(known)}; else give MODULE:PIPELINE, like shop:clicks",
        )
    kinds: tuple[type[Pipeline | Forward], ...] = (Pipeline, Forward)
    return load_named(
        reference,
        kinds,
        what="pipeline",
        called="headrace.spark.pipelines.Pipeline or Forward",
        example="`headrace stream shop:clicks --lake lake --once` for clicks in shop.py",
        make="clicks = headrace.spark.pipelines.Pipeline(...)",
    )
