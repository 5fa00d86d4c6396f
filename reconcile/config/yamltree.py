"""The tree of a YAML document that nobody vouches for, bounded in size and depth before it is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

DEEPEST_NESTING = 64
MOST_NODES = 100_000

# libyaml reads a megabyte in a second; the parser in Python needs a minute.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Node:
    """A value as it stands in the file; `size` and `height` count what its aliases stand for."""

    line: int
    tag: str | None = None
    text: str | None = None
    plain: bool = False
    children: list[Node] = field(default_factory=list)
    mapping: bool = False
    size: int = 1
    height: int = 1
    open: bool = False


class UnfitTreeError(Exception):
    """Raised for a document that is too large or too deep, or whose aliases lead nowhere: edit the file."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def compose(text: str) -> Node | None:
    """Build the only document's tree, counting what aliases stand for without expanding them.

    Raises UnfitTreeError. PyYAML's own `compose` counts nothing, and Python dies of deep nesting in it.
    """
    tree = _Tree()
    event: Any
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and tree.root is not None:
            raise UnfitTreeError("holds several documents; give each a file of its own", line)
        if isinstance(event, yaml.CollectionEndEvent):
            tree.close()
        elif isinstance(event, yaml.AliasEvent):
            tree.add(tree.named(event.anchor, line), line)
        elif isinstance(event, yaml.NodeEvent):
            tree.add(_node(event, line), line, event.anchor)
    return tree.root


class _Tree:
    def __init__(self) -> None:
        self.root: Node | None = None
        self._above: list[Node] = []
        self._anchors: dict[str, Node] = {}
        self._total = 0

    def add(self, node: Node, line: int, anchor: str | None = None) -> None:
        if anchor:
            self._anchors[anchor] = node
        self._total += node.size
        if self._total > MOST_NODES:
            raise UnfitTreeError(f"holds more than {MOST_NODES} values, aliases counted in full", line)
        if len(self._above) + node.height > DEEPEST_NESTING:
            raise UnfitTreeError(f"is nested deeper than {DEEPEST_NESTING} levels", line)
        if self._above:
            self._above[-1].children.append(node)
        else:
            self.root = node
        if node.open:
            self._above.append(node)
        else:
            self._grow(node)

    def close(self) -> None:
        node = self._above.pop()
        node.open = False
        self._grow(node)

    def named(self, anchor: str | None, line: int) -> Node:
        node = self._anchors.get(anchor or "")
        if node is None or node.open:
            why = "names no anchor above it" if node is None else "stands inside of what it names"
            raise UnfitTreeError(f"an alias (*...) {why}; text that begins with * needs quotes", line)
        return node

    def _grow(self, node: Node) -> None:
        if self._above:
            parent = self._above[-1]
            parent.size += node.size
            parent.height = max(parent.height, node.height + 1)


def _node(event: Any, line: int) -> Node:
    if isinstance(event, yaml.ScalarEvent):
        return Node(line, event.tag, event.value, plain=event.tag is None and event.implicit[0])
    return Node(line, event.tag, mapping=isinstance(event, yaml.MappingStartEvent), open=True)
