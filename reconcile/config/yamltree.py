"""The tree of a YAML document that nobody vouches for, bounded in size and depth before it is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from reconcile.errors import Problem

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


def compose(text: str, problems: list[Problem]) -> Node | None:
    """Build the first document's tree, counting what aliases stand for without expanding them."""
    stack: list[Node] = []
    anchors: dict[str, Node] = {}
    root: Node | None = None
    total = 0
    event: Any
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            problems.append(Problem("", "holds several documents; give each a file of its own", line))
            return None
        if isinstance(event, yaml.CollectionEndEvent):
            node = stack.pop()
            node.open = False
            if stack:
                stack[-1].size += node.size
                stack[-1].height = max(stack[-1].height, node.height + 1)
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        if isinstance(event, yaml.AliasEvent):
            target = anchors.get(event.anchor or "")
            if target is None or target.open:
                why = "names no anchor above it" if target is None else "stands inside of what it names"
                problems.append(Problem("", f"an alias (*...) {why}; text that begins with * needs quotes", line))
                return None
            node, added = target, target.size
        else:
            node, added = _node(event, line), 1
            if event.anchor:
                anchors[event.anchor] = node
        total += added
        if total > MOST_NODES:
            problems.append(Problem("", f"holds more than {MOST_NODES} values, aliases counted in full", line))
            return None
        if len(stack) + node.height > DEEPEST_NESTING:
            problems.append(Problem("", f"is nested deeper than {DEEPEST_NESTING} levels", line))
            return None
        if stack:
            stack[-1].children.append(node)
        else:
            root = node
        if node.open:
            stack.append(node)
        elif stack:
            stack[-1].size += added
            stack[-1].height = max(stack[-1].height, node.height + 1)
    return root


def _node(event: Any, line: int) -> Node:
    if isinstance(event, yaml.ScalarEvent):
        return Node(line, event.tag, event.value, plain=event.tag is None and event.implicit[0])
    return Node(line, event.tag, mapping=isinstance(event, yaml.MappingStartEvent), open=True)
