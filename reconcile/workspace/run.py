"""A run: the artifacts that its stages publish, whole or not at all, and read from one another."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.errors import RefusedError
from reconcile.workspace import handoff
from reconcile.workspace.artifact import Artifact, ArtifactContent, data_files, is_artifact_name
from reconcile.workspace.filesystem import FileSystem, LocalFileSystem, literal
from reconcile.workspace.handoff import AnyHandoff, Handoff
from reconcile.workspace.manifest import ChangedInputsError, Inputs, Manifest, MissingArtifactError, Stage

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from reconcile.workspace.arrow_tables import TextReader

_LOG = logging.getLogger(__name__)

_DATA = "data"
_JSON = "data.json"
_SMALL = 8 * 1024 * 1024
"""A table of few rows may be large too; in bytes."""


class Run:
    """The artifacts of one run, each a folder with data and a manifest."""

    def __init__(self, files: FileSystem, folder: str, run_id: str) -> None:
        self._files = files
        self.folder = folder
        self.id = run_id

    def inputs(
        self,
        contract: str,
        settings: Mapping[str, Any] | None = None,
        made_of: Iterable[str | Manifest] = (),
    ) -> Inputs:
        """Describe what an artifact is made of: names of this run's artifacts, or manifests from elsewhere.

        Raises MissingArtifactError for a name that is not published.
        """
        read = [self.manifest(each) if isinstance(each, str) else each for each in made_of]
        return Inputs(
            contract=contract,
            settings=dict(settings or {}),
            artifacts={each.name: each.digest for each in read},
            incomplete=tuple(each.name for each in read if not each.complete),
        )

    def done(self, name: str, inputs: Inputs) -> bool:
        """Tell whether a complete artifact of these inputs stands, so that there is nothing to do.

        Raises ChangedInputsError, with every change, if a complete one of other inputs stands.
        """
        manifest = self.find(name)
        if manifest is None or not manifest.complete:
            return False
        if changes := manifest.inputs.changes(to=inputs):
            raise ChangedInputsError(
                f"{name} of the run {self.id} was made of something else; what changed is\n  "
                + "\n  ".join(changes)
                + "\nstart a new run, or go back to what this one was made of"
            )
        return True

    def publish(self, value: Handoff, inputs: Inputs, *, complete: bool = True, notes: Sequence[str] = ()) -> Manifest:
        """Publish a hand-off under its own name."""
        data = handoff.to_data(value)
        return self.publish_json(value.ARTIFACT, data, inputs, stage=value.STAGE, complete=complete, notes=notes)

    def publish_json(
        self,
        name: str,
        value: Any,
        inputs: Inputs,
        *,
        stage: Stage,
        complete: bool = True,
        notes: Sequence[str] = (),
    ) -> Manifest:
        """Publish a value as JSON. Incomplete inputs make it incomplete; an incomplete artifact is replaced."""

        return self._artifact(name).publish(self._json_writer(value), inputs, stage, complete=complete, notes=notes)

    def _json_writer(self, value: Any) -> Callable[[str], ArtifactContent]:
        def write(place: str) -> ArtifactContent:
            text = json.dumps(value, indent=1, allow_nan=False)
            self._files.write_atomically(f"{place}/{_JSON}", [text, "\n"])
            rows = len(value) if isinstance(value, list) else 1
            return ArtifactContent("json", rows, _json_digest(json.loads(text)))

        return write

    def publish_parquet(
        self,
        name: str,
        df: DataFrame,
        inputs: Inputs,
        *,
        stage: Stage,
        complete: bool = True,
        notes: Sequence[str] = (),
    ) -> Manifest:
        """Publish a DataFrame as Parquet, counted and digested as it is written.

        One that is made of local frames alone is written to local files by this process: in one job, or none.
        """
        began = time.monotonic()
        made = self._artifact(name).publish(self._parquet_writer(df), inputs, stage, complete=complete, notes=notes)
        _LOG.debug(f"{name}: {made.rows:,} rows in {time.monotonic() - began:.1f} s, digest {made.digest}")
        return made

    def _parquet_writer(self, df: DataFrame) -> Callable[[str], ArtifactContent]:
        from pyspark.sql import Observation

        from reconcile.spark import local_frames
        from reconcile.workspace import table_digest

        def write(place: str) -> ArtifactContent:
            table = local_frames.table(df) if self._is_local else None
            if table is None:
                return write_by_spark(place)
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            self._files.mkdirs(f"{place}/{_DATA}")
            if table.num_rows:
                pq.write_table(table, f"{place}/{_DATA}/part-00000.parquet", compression="zstd")
            digest = table_digest.digest_of_local(local_frames.of_table(df.sparkSession, table, df.schema))
            return ArtifactContent("parquet", table.num_rows, digest, df.schema.jsonValue())

        def write_by_spark(place: str) -> ArtifactContent:
            observation = Observation()
            writer = table_digest.observed(df, observation).write
            writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            writer.parquet(self._files.uri(f"{place}/{_DATA}"))
            rows = table_digest.row_count(observation)
            if rows and not data_files(self._files, place):
                raise RefusedError(
                    f"Spark wrote {rows} rows, and none of them came to {self.folder}: "
                    "its executors need a workspace that they share, such as hdfs://... or s3a://..."
                )
            return ArtifactContent("parquet", rows, table_digest.digest(df.schema, observation), df.schema.jsonValue())

        return write

    def publish_texts(
        self, name: str, columns: Sequence[str], readers: Sequence[TextReader], inputs: Inputs, *, stage: Stage
    ) -> Manifest:
        """Publish columns of text that readers read in this process, on local files, as `publish_parquet` would."""
        from reconcile.workspace import arrow_tables

        def write(place: str) -> ArtifactContent:
            folder = f"{place}/{_DATA}"
            self._files.mkdirs(folder)
            return arrow_tables.write(Path(folder), columns, readers)

        began = time.monotonic()
        made = self._artifact(name).publish(write, inputs, stage, complete=True, notes=())
        _LOG.debug(f"{name}: {made.rows:,} rows in {time.monotonic() - began:.1f} s, digest {made.digest}")
        return made

    def write_file(self, name: str, pieces: Iterable[str]) -> str:
        """Write a file for people beside the artifacts, of which readers see all or nothing, and return its path."""
        path = f"{self.folder}/{name}"
        self._files.write_atomically(path, pieces)
        return path

    def rewrite_parquet(self, name: str, df: DataFrame) -> Manifest:
        """Replace the rows of an artifact by some of them."""
        return self._artifact(name).rewrite(self._parquet_writer(df))

    def rewrite_json(self, name: str, value: Any) -> Manifest:
        """Replace the value of an artifact by less of it."""
        return self._artifact(name).rewrite(self._json_writer(value))

    def follow(self, digests: Mapping[str, str]) -> None:
        """Say in all manifests that what their artifacts were made of has other digests now, by the old ones."""
        for each in self.manifests():
            made_of = {name: digests.get(digest, digest) for name, digest in each.inputs.artifacts.items()}
            if made_of != each.inputs.artifacts:
                inputs = each.inputs.model_copy(update={"artifacts": made_of})
                self._artifact(each.name).rewrite_manifest(each.model_copy(update={"inputs": inputs}))

    def restore(self) -> None:
        """Put back the artifacts whose rewriting was cut off, and remove what else is left of it."""
        for entry in self._files.list(self.folder):
            name = entry.name[1:].rpartition(".")[0]
            if entry.folder and entry.name.startswith(".") and is_artifact_name(name):
                self._artifact(name).restore()

    def files(self) -> dict[str, str]:
        """Read the files for people beside the artifacts, by name."""
        entries = [each.name for each in self._files.list(self.folder) if not each.folder]
        return {name: self._files.read_text(f"{self.folder}/{name}") for name in entries}

    def discard(self, stage: Stage) -> None:
        """Remove what a stage has published: it is of an attempt that was cut off, and the next one begins anew."""
        for manifest in self.manifests():
            if manifest.stage == stage:
                self._artifact(manifest.name).remove()

    def remove(self, name: str) -> None:
        """Remove an artifact, if it is published; what was made of it stands."""
        self._artifact(name).remove()

    def find(self, name: str) -> Manifest | None:
        """Read the manifest of an artifact; None if it is not published.

        Raises DamagedArtifactError if its files are not those that were published.
        """
        return self._artifact(name).find()

    def manifest(self, name: str) -> Manifest:
        """Read the manifest of an artifact; raise MissingArtifactError if it is not published."""
        manifest = self.find(name)
        if manifest is None:
            raise MissingArtifactError(f"the run {self.id} has no {name} in {self.folder}: run the stage that makes it")
        return manifest

    def manifests(self) -> list[Manifest]:
        """Read the manifests of all artifacts, by name."""
        try:
            entries = self._files.list(self.folder)
        except FileNotFoundError:
            return []
        found = [self.find(entry.name) for entry in entries if entry.folder and is_artifact_name(entry.name)]
        return [manifest for manifest in found if manifest is not None]

    def read(self, model: type[AnyHandoff]) -> AnyHandoff:
        """Read a hand-off; raise DamagedArtifactError if its file does not hold one that this program reads."""
        try:
            return handoff.parse(model, self._json_text(model.ARTIFACT))
        except ValueError as error:
            raise self._artifact(model.ARTIFACT).damaged(f"it holds no {model.ARTIFACT}: {error}") from None

    def read_if_there(self, model: type[AnyHandoff]) -> AnyHandoff | None:
        """Read a hand-off, or None if it is not published."""
        return self.read(model) if self.find(model.ARTIFACT) is not None else None

    def json(self, name: str) -> Any:
        """Read the value of a JSON artifact."""
        return json.loads(self._json_text(name))

    def _json_text(self, name: str) -> str:
        while True:
            manifest = self._of_kind(name, "json")
            try:
                text = self._files.read_text(f"{self._artifact(name).folder}/{_JSON}")
                if _json_digest(json.loads(text)) == manifest.digest:
                    return text
                problem = f"{_JSON} is not what was published"
            except (FileNotFoundError, ValueError):
                problem = f"{_JSON} is gone, or not JSON any more"
            if self.find(name) == manifest:
                raise self._artifact(name).damaged(problem)

    def parquet(self, name: str, spark: SparkSession) -> DataFrame:
        """Read the rows of a Parquet artifact, with the columns that were published in their order.

        Of few rows in local files a local frame is built.
        """
        from pyspark.sql.types import StructType

        from reconcile.spark import local_frames

        manifest = self._of_kind(name, "parquet")
        schema = StructType.fromJson(manifest.columns or {"fields": []})
        if not manifest.files:
            return local_frames.of_rows(spark, [], schema)
        if (table := self.table(name, local_frames.MOST, _SMALL)) is not None:
            return local_frames.of_table(spark, table, schema)
        path = literal(self._files.uri(f"{self._artifact(name).folder}/{_DATA}"))
        return spark.read.schema(schema).parquet(path)

    def table(self, name: str, rows: int, size: int) -> pa.Table | None:
        """Read a Parquet artifact into this process; None if it has no rows, or more rows or bytes than given."""
        manifest = self._of_kind(name, "parquet")
        if not (self._is_local and 0 < manifest.rows <= rows and sum(manifest.files.values()) <= size):
            return None
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pa.concat_tables(pq.ParquetFile(path).read() for path in self.data_files(name))

    def data_files(self, name: str) -> list[str]:
        """List the paths of an artifact's data files, for readers that are not Spark."""
        return [f"{self._artifact(name).folder}/{path}" for path in sorted(self.manifest(name).files)]

    @property
    def _is_local(self) -> bool:
        return isinstance(self._files, LocalFileSystem)

    def _of_kind(self, name: str, kind: str) -> Manifest:
        manifest = self.manifest(name)
        if manifest.kind != kind:
            raise RefusedError(f"{name} of the run {self.id} is {manifest.kind}, not {kind}")
        return manifest

    def _artifact(self, name: str) -> Artifact:
        return Artifact(self._files, self.folder, self.id, name)


def _json_digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
