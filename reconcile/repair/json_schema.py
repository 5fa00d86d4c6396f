"""What a JSON Schema says of a correction: its readers may refuse a value that the schema does not allow."""

from __future__ import annotations

import json
from typing import Any

from reconcile.gather.log.value_reader import JsonType
from reconcile.repair.json_values import MisfitError, RowMisfitError


def require(type_: JsonType, text: str) -> None:
    """Raise RowMisfitError for a value that the schema does not allow, and tell nothing of the value."""
    from jsonschema.exceptions import SchemaError, ValidationError, best_match
    from jsonschema.validators import Draft7Validator, validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7

    schema: Any = json.loads(type_.text)
    known: Any = Registry().with_resources(
        (each.name, Resource.from_contents(json.loads(each.text), default_specification=DRAFT7))
        for each in type_.references
    )
    kind = validator_for(schema, default=Draft7Validator)
    try:
        kind.check_schema(schema)
        found: ValidationError | None = best_match(kind(schema, registry=known).iter_errors(json.loads(text)))
    except (SchemaError, Unresolvable, RecursionError):
        raise MisfitError("the JSON Schema of the newest record cannot be used to check corrections") from None
    if found is not None:
        raise RowMisfitError(
            f"the topic's JSON Schema does not allow what stands at {found.json_path}: {found.validator}"
        )
