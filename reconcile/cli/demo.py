"""`reconcile demo`: the whole story in one command."""

from __future__ import annotations

import click

from reconcile.cli.lab import say, show_truth


@click.command()
@click.option("--keep", is_flag=True, help="Leave the world up to look around in.")
def demo(keep: bool) -> None:
    """Bring a world up, fill it, plant every fault, show the truth, take it down."""
    from reconcile.lab import truth, world
    from reconcile.lab.demo import FOLDER, damaged_world
    from reconcile.lab.folder import Lab

    lab = Lab(FOLDER)
    try:
        damaged_world(say)
        show_truth(truth.read(lab.truth))
    except BaseException:
        world.down(lab)
        raise
    if keep:
        say(
            f"the world stays up: `reconcile lab status --dir {FOLDER}` shows it,"
            f" `reconcile lab down --wipe --dir {FOLDER}` ends it"
        )
    else:
        world.down(lab, wipe=True)
        say("down, and the world is gone")
