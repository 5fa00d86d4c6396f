"""The proxies that the environment names, as Java wants to be told of them: it reads no HTTPS_PROXY."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

from reconcile.errors import RefusedError

_NEVER_BY_PROXY = ("localhost", "127.*", "[::1]")


@dataclass(frozen=True)
class JavaProxies:
    """Java's options, and what people may see of them."""

    addresses: dict[str, str]
    """Host and port of the proxy for a scheme, `https` or `http`."""
    options: tuple[str, ...]

    def argument_file(self) -> str:
        """Build the text of a file that Java takes as `@file`: passwords stay off the command line."""
        escaped = (each.replace("\\", "\\\\").replace('"', '\\"') for each in self.options)
        return "".join(f'"{each}"\n' for each in escaped)


def java_proxies() -> JavaProxies:
    """Read HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case; raise RefusedError for what Java cannot use."""
    given = getproxies_environment()
    proxies = {scheme: _parts(scheme, given[scheme]) for scheme in ("https", "http") if scheme in given}
    options = [option for scheme, parts in proxies.items() for option in _options(scheme, parts)]
    if proxies:
        options.append(f"-Dhttp.nonProxyHosts={'|'.join([*_NEVER_BY_PROXY, *_hosts(given.get('no', ''))])}")
    addresses: dict[str, str] = {scheme: f"{parts.hostname}:{parts.port or 80}" for scheme, parts in proxies.items()}
    return JavaProxies(addresses, tuple(options))


def _parts(scheme: str, url: str) -> SplitResult:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        usable = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise RefusedError(f"{scheme.upper()}_PROXY is no proxy that Java can use: http://[user:password@]host:port")
    return parts


def _options(scheme: str, parts: SplitResult) -> Iterator[str]:
    yield f"-D{scheme}.proxyHost={parts.hostname}"
    yield f"-D{scheme}.proxyPort={parts.port or 80}"
    if parts.username:
        yield f"-Dhttp.proxyUser={unquote(parts.username)}"
        yield f"-Dhttp.proxyPassword={unquote(parts.password or '')}"
        yield "-Djdk.http.auth.tunneling.disabledSchemes="  # else Java shows no password to a tunnel


def _hosts(text: str) -> Iterator[str]:
    """Translate NO_PROXY, where `example.com` and `.example.com` mean all hosts below it too."""
    for entry in (each.strip() for each in text.split(",")):
        host = (entry.rpartition(":")[0] if entry.count(":") == 1 else entry).lstrip(".")
        if host == "*":
            yield host
        elif host and "/" not in host:  # Java knows no networks
            yield from (host, f"*.{host}")
