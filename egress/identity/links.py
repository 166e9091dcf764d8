"""Where a path of a policy leads in the workload's root: authors write /usr/bin/python3, the kernel reports its end.

Every component is followed, and no link leaves the root.
"""

import os
from collections import deque
from pathlib import Path

MAX_LINKS = 40
"""As the kernel: more are taken for a loop."""


class LinkLoop(Exception):
    """A path that leads through more links than the kernel would follow."""


def resolve_in_root(root: Path, path: str) -> str | None:
    """The path that `path` leads to, as the workload sees it; None while something on the way does not exist.

    Raises `LinkLoop`. `root` is `/proc/<entrypoint>/root`, or `/` for programs of this host.
    """
    todo = deque(part for part in path.split("/") if part not in ("", "."))
    done: list[str] = []
    links = 0
    while todo:
        part = todo.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]  # the parent of the root is the root
            continue
        target = _link_target(root.joinpath(*done, part))
        if target is None:
            return None
        if not target:
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise LinkLoop(f"{path} leads through more than {MAX_LINKS} links")
        if target.startswith("/"):
            done.clear()
        todo.extendleft(reversed(target.split("/")))
    return "/" + "/".join(done)


def _link_target(path: Path) -> str | None:
    """Empty for what is no link, None for what is not there."""
    try:
        return os.fsdecode(path.readlink())
    except FileNotFoundError:
        return None
    except OSError:
        return "" if os.path.lexists(path) else None
