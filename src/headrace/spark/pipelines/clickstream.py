"""The shop's clickstream: events, sessions, the funnel and revenue.

The events are what `headrace ingest` makes of the shop's files.
"""

from headrace.spark.pipelines.definition import (
    Count,
    Derive,
    Expect,
    Pipeline,
    Rows,
    Sessions,
    Sum,
    Topic,
    Totals,
)
from headrace.spark.pipelines.fields import Field, Json

_VIEW, _CART, _PURCHASE = (f"event_type = '{kind}'" for kind in ("view", "cart", "purchase"))

CLICKSTREAM = Pipeline(
    "clickstream",
    source=Topic(
        "ecommerce.events",
        Json(
            Field("eventTime", "time", "event_time", required=True),
            Field("eventType", "string", "event_type", required=True),
            Field("productId", "long", "product_id", required=True),
            Field("categoryId", "long", "category_id", required=True),
            Field("categoryCode", "string", "category_code"),
            Field("brand", "string"),
            Field("price", "decimal(12,2)", required=True),
            Field("userid", "long", "user_id", required=True),
            Field("userSession", "string", "user_session"),
        ),
    ),
    time="event_time",
    steps=(
        Derive("category", "coalesce(split_part(category_code, '.', 1), 'none')"),
        Derive("hour", "date_trunc('hour', event_time)"),
    ),
    expectations=(
        Expect(
            "a known type of event",
            "event_type in ('view', 'cart', 'remove_from_cart', 'purchase')",
        ),
        Expect("a price that is not negative", "price >= 0"),
        Expect("a session", "user_session is not null", "warn"),
    ),
    rows=Rows("events"),
    derived=(
        Sessions(
            "sessions",
            key="user_session",
            gap="30 minutes",
            measures={
                "events": Count(),
                "views": Count(_VIEW),
                "carts": Count(_CART),
                "purchases": Count(_PURCHASE),
                "revenue": Sum("price", where=_PURCHASE),
            },
        ),
        Totals(
            "funnel",
            by={"category": "category", "hour": "hour"},
            measures={
                "views": Count(_VIEW),
                "carts": Count(_CART),
                "purchases": Count(_PURCHASE),
            },
        ),
        Totals(
            "revenue",
            by={"brand": "coalesce(brand, 'none')", "hour": "hour"},
            measures={"purchases": Count(), "revenue": Sum("price")},
            where=_PURCHASE,
            late="1 day",
        ),
    ),
)
