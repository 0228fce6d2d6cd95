"""The clickstream's tables, computed from the CSV file by DuckDB."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

_EVENTS = """
    create or replace temp table events as
    select row_number() over () as line,
        strptime(event_time, '%Y-%m-%d %H:%M:%S UTC') as moment,
        event_type as kind, nullif(category_code, '') as category, nullif(brand, '') as brand,
        price::decimal(12,2) as price, nullif(user_session, '') as session
    from read_csv('{path}', header = true, all_varchar = true)
"""
_KINDS = """
    count(*) filter (kind = 'view') as views,
    count(*) filter (kind = 'cart') as carts,
    count(*) filter (kind = 'purchase') as purchases
"""
_REVENUE = "coalesce(sum(price) filter (kind = 'purchase'), 0)::decimal(18,2) as revenue"
_QUERIES = {
    "sessions": f"""
        with gaps as (
            select *, moment - lag(moment) over (partition by session order by moment)
                > interval 30 minutes
                as opens
            from events where session is not null
        ), numbered as (
            select *, count(*) filter (opens) over (
                partition by session order by moment rows unbounded preceding) as number
            from gaps
        )
        select session, min(moment), max(moment), count(*), {_KINDS}, {_REVENUE}
        from numbered group by session, number
    """,
    "funnel": f"""
        select coalesce(split_part(category, '.', 1), 'none') as category,
            date_trunc('hour', moment) as hour, {_KINDS}
        from events group by 1, 2
    """,
    "revenue": f"""
        select coalesce(brand, 'none') as brand, date_trunc('hour', moment) as hour, count(*),
            {_REVENUE}
        from events where kind = 'purchase' group by 1, 2
    """,
}


def tables_of(path: Path) -> dict[str, set[Any]]:
    """By table, its rows; `events` are only counted."""
    with duckdb.connect() as connection:
        connection.execute(_EVENTS.format(path=path))
        queries = _QUERIES | {"events": "select count(*) from events"}
        return {
            name: {tuple(map(_in_utc, row)) for row in connection.execute(query).fetchall()}
            for name, query in queries.items()
        }


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
