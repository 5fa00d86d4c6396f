"""Protobuf schemas of tests, as a compiler would give them."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_TYPES = {
    **{each: f"type: TYPE_{each.upper()}" for each in ("bool", "int32", "int64", "uint64", "sint32", "fixed64")},
    **{each: f"type: TYPE_{each.upper()}" for each in ("float", "double", "string", "bytes")},
}


def field(number: int, name: str, kind: str, *, label: str = "OPTIONAL", more: str = "") -> str:
    """Write a field; a kind with a dot is a message, with a hash an enum."""
    named = f'type: TYPE_{"ENUM" if kind[0] == "#" else "MESSAGE"} type_name: "{kind.lstrip("#")}"'
    return f'field {{ name: "{name}" number: {number} label: LABEL_{label} {_TYPES.get(kind, named)} {more} }}'


def present(number: int, name: str, kind: str, place: int) -> str:
    """Write a field of proto3 that says whether it is set."""
    return field(number, name, kind, more=f"proto3_optional: true oneof_index: {place}")


def message(name: str, *parts: str) -> str:
    """Write a message."""
    return f'message_type {{ name: "{name}" {" ".join(parts)} }}'


def file(name: str, *parts: str, imports: tuple[str, ...] = (), syntax: str = "proto3") -> FileDescriptorProto:
    """Build a file of the package `shop`."""
    said = " ".join(f'dependency: "{each}"' for each in imports)
    text = f'name: "{name}" package: "shop" syntax: "{syntax}" {said} {" ".join(parts)}'
    return text_format.Parse(text, FileDescriptorProto())


def text(of: FileDescriptorProto) -> str:
    """Write a file as a registry keeps it."""
    return base64.b64encode(of.SerializeToString()).decode()


def pool(*files: FileDescriptorProto) -> DescriptorPool:
    """Build a pool of files, beside those of Google that they import."""
    found, there = DescriptorPool(), set[str]()
    for each in files:
        for name in each.dependency:
            if name.startswith("google/") and name not in there:
                there.add(name)
                found.AddSerializedFile(_google(name))
        found.Add(each)
    return found


def new(of: DescriptorPool, name: str) -> Any:
    """Choose the class of a message."""
    return GetMessageClass(of.FindMessageTypeByName(f"shop.{name}"))


def _google(name: str) -> bytes:
    import importlib

    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    data: bytes = module.DESCRIPTOR.serialized_pb
    return data
