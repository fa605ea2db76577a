"""`lost+found/` of a data directory: files that could not be used, complete and unchanged. Nothing removes them."""

from itertools import count

from stan.log.files.disk import Files

LOST_FOUND = "lost+found"


class LostFound:
    """The directory; it is made when the first file is put into it."""

    def __init__(self, files: Files, directory: str) -> None:
        """*directory*: the data directory."""
        self.path = f"{directory}/{LOST_FOUND}"
        self._files = files

    def put(self, path: str, name: str) -> str:
        """Move a file or a directory here, durably; returns its new path, which ends with *name* or with *name* and a number."""
        target = self._free_path(name)
        self._files.rename(path, target)
        self._files.sync_directory(self.path)
        self._files.sync_directory(path.rpartition("/")[0])
        return target

    def _free_path(self, name: str) -> str:
        self._files.makedirs(self.path)
        used = set(self._files.listdir(self.path))
        numbered = (name if number == 1 else f"{name}.{number}" for number in count(1))
        return f"{self.path}/{next(free for free in numbered if free not in used)}"
