"""Spark, ready to use, and an exactly-once way from Spark to Kafka.

>>> from headrace.spark import session                             # doctest: +SKIP
>>> spark = session()                                              # doctest: +SKIP
>>> events.write.format("headrace").option("topic", "clicks").save()  # doctest: +SKIP
"""

from headrace.spark.session import session

__all__ = ["session"]
