"""Who asks for a run and who approves its plan: read where a command runs, kept in the control store."""

from __future__ import annotations

import os
import pwd

from reconcile.domain.approval import Actor


def os_user() -> Actor:
    """Read which user of this machine runs this process: from the system, for anybody can write an environment."""
    uid, sudo_user = os.getuid(), os.environ.get("SUDO_USER") or None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container that is run as any user
        name = f"uid {uid}"
    if sudo_user is not None and not sudo_user.isprintable():
        sudo_user = ascii(sudo_user)
    return Actor(name, "cli", None if sudo_user == name else sudo_user)
