"""Other devices of the price book: how fast each would have to be to serve at the cost of the chosen row.

That needs no guess at how fast a device is: its price alone says how many queries a second it must answer.
"""

from __future__ import annotations

from report import model
from report.prices import PriceBook
from testbed.records.cost import Alternative, ServingCost


def alternatives(chosen: ServingCost | None, book: PriceBook) -> tuple[Alternative, ...]:
    """Return every device of the price book with the speed that it needs, cheapest first.

    Args:
        chosen: the row to be matched; none without a cost.
        book: its devices.
    """
    if chosen is None or chosen.cost_usd_per_million_queries is None:
        return ()
    usd_per_query = chosen.cost_usd_per_million_queries / 1e6
    found = []
    for key, device in book.devices.items():
        usd_per_hour = device.hourly_usd(book.usd_per_kwh.value)
        found.append(
            Alternative(
                device=key,
                name=device.name,
                kind=device.kind,
                usd_per_hour=usd_per_hour,
                source=device.source,
                date=device.date.isoformat(),
                needed_qps=usd_per_hour / model.SECONDS_PER_HOUR / usd_per_query,
            )
        )
    return tuple(sorted(found, key=lambda alternative: alternative.usd_per_hour))
