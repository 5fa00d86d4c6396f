"""Where the lab's broker is, and how its own services reach it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class BrokerAddress(str):
    """The address of a broker; that of a secure one knows how to log in, too."""

    security: Mapping[str, str]

    def __new__(cls, address: str, security: Mapping[str, str] = MappingProxyType({})) -> BrokerAddress:
        """Take librdkafka's options for the log-in along."""
        made = super().__new__(cls, address)
        made.security = security
        return made


def client_options(bootstrap: str) -> dict[str, str | int]:
    """Build the options of a client of a broker that says nothing on stderr."""
    security = bootstrap.security if isinstance(bootstrap, BrokerAddress) else {}
    return {"bootstrap.servers": str(bootstrap), "log_level": 0, **security}
