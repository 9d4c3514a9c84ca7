"""The part of the support table that is about one backend."""

from __future__ import annotations

import msgspec

from attnctl.registry import Registry
from attnctl.selection.options import backend_name
from attnctl.support.table import Matrix, matrix


def support_of(word: str, registry: Registry) -> Matrix:
    """The backend's row, and the orders in which it stands; InputError where there is none."""
    name = backend_name(word, registry)
    table = matrix(registry)
    rows = tuple(row for row in table.rows if row.name == name)
    orders = tuple(order for order in table.orders if name in order.names)
    return msgspec.structs.replace(table, rows=rows, orders=orders, broken=())
