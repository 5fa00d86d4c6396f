"""Files by URI (hdfs://, s3a://, file://, ...), through the Hadoop that is in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reconcile.errors import RefusedError, UnreachableError
from reconcile.spark import internals
from reconcile.workspace.filesystem import Entry, beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Elsewhere (s3a, gs, ...) a rename copies file after file, while the creation of a file is atomic.
_RENAMES_ATOMICALLY = {"file", "hdfs", "viewfs"}
# No rights; a scheme that is unknown, or whose jar (such as hadoop-aws) is missing.
_REFUSED = {"AccessControlException", "UnsupportedFileSystemException", "RuntimeException"}


class HadoopFileSystem:
    """Files that a Spark session reaches."""

    def __init__(self, root: str, spark: SparkSession) -> None:
        self._java = internals.java(spark)
        scheme = root.split(":", 1)[0].lower()
        self.renames_atomically = scheme in _RENAMES_ATOMICALLY
        with self._named("reach", root):
            configuration = internals.hadoop_configuration(spark)
            found = self._path(root).getFileSystem(configuration)
            # Without the checksum files beside each file, which a rename would leave behind for an instant.
            self._files = found.getRawFileSystem() if scheme == "file" else found
            self._context: Any = None
            if self.renames_atomically:
                uri = found.getUri()
                self._context = self._java.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)

    def read_text(self, path: str) -> str:
        with self._named("read", path):
            stream = self._files.open(self._path(path))
            try:
                return bytes(stream.readAllBytes()).decode("utf-8")
            finally:
                stream.close()

    def write_atomically(self, path: str, pieces: Iterable[str]) -> None:
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/{beside(name)}" if self.renames_atomically else path
        with self._named("write", path):
            stream = self._files.create(self._path(fresh), True)
            try:
                for piece in pieces:
                    stream.write(bytearray(piece.encode("utf-8")))
            except BaseException:
                stream.close()
                self.delete(fresh)
                raise
            stream.close()
            if fresh != path:
                self._rename(fresh, path, "OVERWRITE")

    def rename(self, source: str, target: str) -> None:
        with self._named("rename", source):
            if self.exists(target):
                raise FileExistsError(target)
            if self._context is None:
                if not self._files.rename(self._path(source), self._path(target)):
                    raise FileNotFoundError(source)
            else:
                self._rename(source, target, "NONE")

    def exists(self, path: str) -> bool:
        with self._named("look for", path):
            return bool(self._files.exists(self._path(path)))

    def list(self, path: str) -> list[Entry]:
        with self._named("list", path):
            found = [
                Entry(each.getPath().getName(), 0 if each.isDirectory() else each.getLen(), each.isDirectory())
                for each in self._files.listStatus(self._path(path))
            ]
        return sorted(found, key=lambda each: each.name)

    def delete(self, path: str) -> None:
        with self._named("delete", path):
            self._files.delete(self._path(path), True)

    def mkdirs(self, path: str) -> None:
        with self._named("make", path):
            private = self._java.org.apache.hadoop.fs.permission.FsPermission("700")
            self._files.mkdirs(self._path(path), private)

    def restrict(self, path: str) -> None:
        """Nothing is left to do: `fs.permissions.umask-mode` of the session holds for all that Hadoop writes."""

    def uri(self, path: str) -> str:
        return path

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(path)

    def _rename(self, source: str, target: str, option: str) -> None:
        assert self._context is not None
        from py4j.java_gateway import get_java_class

        kind = self._java.org.apache.hadoop.fs.Options.Rename
        options = self._java.java.lang.reflect.Array.newInstance(get_java_class(kind), 1)
        options[0] = getattr(kind, option)
        self._context.rename(self._path(source), self._path(target), options)

    @contextmanager
    def _named(self, verb: str, path: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            yield
        except Py4JJavaError as error:
            thrown = error.java_exception
            kind = thrown.getClass().getSimpleName()
            if kind in ("FileNotFoundException", "NoSuchFileException"):
                raise FileNotFoundError(path) from error
            if kind in ("FileAlreadyExistsException", "ParentNotDirectoryException"):
                raise FileExistsError(path) from error
            failure = RefusedError if kind in _REFUSED else UnreachableError
            raise failure(f"cannot {verb} {path}: {thrown.toString()}") from error
        except PySparkException as error:
            raise RefusedError(f"cannot {verb} {path}: {error}") from error
