"""A secure lab, the commands on it, and rights that are taken away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from click.testing import CliRunner, Result
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from reconcile.cli import cli
from reconcile.files import committed
from reconcile.lab import world as lab_world
from reconcile.lab.folder import AUDITOR, Lab
from reconcile.lab.services.offsets import admin_client
from tests.integration.worlds import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCOUNT = "user-account"


@dataclass
class SecureWorld:
    """A lab that wants TLS and passwords, whose auditor has what `contract grants` prints."""

    lab: Lab
    spark: SparkSession
    folder: Path
    made: int = 0

    def contract(self, name: str = ACCOUNT, **repair: Any) -> Path:
        """Write one of the lab's contracts, which waits for nothing, with changes to what may be repaired."""
        said = yaml.safe_load(committed("contracts", f"{name}.yaml").read_text("utf-8"))
        said["consumers"][0]["settle"] = {"timeout": "2s", "confirm_after": "0s"}
        said["consumers"][0]["repair"] |= repair
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(said, sort_keys=False))
        return file

    @property
    def settings(self) -> Path:
        """The settings that the lab wrote."""
        return lab_world.settings_file(self.lab)

    def changed(self, name: str = "main", **changes: Any) -> Path:
        """Write the lab's settings with another connection; what is None is left out of its security."""
        said = yaml.safe_load(self.settings.read_text("utf-8"))
        connection = said["connections"][name]
        if "security" in connection and "url" not in changes:
            merged = {**connection["security"], **{key.replace("_", "."): value for key, value in changes.items()}}
            connection["security"] = {key: value for key, value in merged.items() if value is not None}
        else:
            connection |= changes
        self.made += 1
        file = self.folder / f"reconcile-{self.made}.yaml"
        file.write_text(yaml.safe_dump(said))
        return file

    def run(self, *words: object, settings: Path | None = None, workspace: bool = True) -> Result:
        """Run a command as a user would, in this process."""
        config = ["--config", str(settings or self.settings)]
        where = ["--workspace", str(self.folder / "runs")] if workspace else []
        return CliRunner().invoke(cli, [*map(str, words), *config, *where])

    @contextmanager
    def without(self, kind: ResourceType, name: str, operation: AclOperation, user: str = AUDITOR) -> Iterator[None]:
        """Take one right away for a block."""
        admin = admin_client(self.lab.bootstrap)
        literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        parts = (kind, name, literal, f"User:{user}", "*", operation, allowed)
        found = admin.delete_acls([AclBindingFilter(*parts)])
        assert [1] == [len(each.result(30)) for each in found.values()], f"{parts} was not granted"
        until(lambda: not admin.describe_acls(AclBindingFilter(*parts)).result(30))
        try:
            yield
        finally:
            for each in admin.create_acls([AclBinding(*parts)]).values():
                each.result(30)
            until(lambda: admin.describe_acls(AclBindingFilter(*parts)).result(30))


def message(result: Result) -> str:
    """Give the error that a command ended with."""
    return str(result.exception)
