"""Whether this tree says of a damaged world byte for byte what another revision says: exits 1 where it does not.

python -m bench.same_findings HEAD~3 --aggregates 2000

One world comes up by this tree's code, with every fault planted, and then stands still. The revision, in a worktree of
its own, and this tree audit all contracts in it, one after the other, by the command line alone. Both use the same
settings, run ids and jars (this tree's), each its own contracts, workspace and control store (SQLite in the workspace).

Compared are the exit codes and all that `run --json`, `findings --json`, `plan --json` and, for ten ids of different
causes, `explain --json` print: every value in its order, and how the JSON is spelled. Taken out is only what a second
run of the same code says differently:

- `run`: `fence.opened_at` and `fence.closed_at`, which are instants of the run;
- `run`: `artifacts`, the paths of the report and of the findings in the workspace;
- `plan`: `made_of.summary` and `digest`: the summary holds the fence's instants, and the plan's digest covers that one.

`made_of.findings` stays: it is the digest of the findings alone, in any order and any number of files, and of their
columns. What a later revision adds or changes on purpose is named by `--ignore KEY`, a key of any object.
What was compared stays in .lab-same/compared, a line for each value.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TREE = Path(__file__).resolve().parents[1]
FOLDER = TREE / ".lab-same"
LAB = FOLDER / "lab"
SETTINGS = FOLDER / "settings.yaml"
PORTS = ("--postgres-port", "15642", "--kafka-port", "19472", "--controller-port", "19473")
CONTRACTS = ("user-account", "user-balance", "user-activity")
TAKEN_OUT = {
    "run": ("fence.opened_at", "fence.closed_at", "artifacts.report", "artifacts.findings"),
    "plan": ("digest", "made_of.summary"),
}
EXPLAINED = 10
SHOWN = 40
AGREES, DRIFT = 0, 1


@dataclass(frozen=True)
class Said:
    """What a command printed on stdout."""

    command: str
    code: int
    text: str
    data: Any

    def lines(self, ignored: Collection[str]) -> list[str]:
        """Build a line for each value, without what differs between two runs of the same code."""
        spelled = self.text == json.dumps(self.data, ensure_ascii=False) + "\n"
        values = _values(self.data, "", TAKEN_OUT.get(self.command, ()), ignored)
        return [f"exit code {self.code}", f"spelled as Python does: {spelled}", *values]


@dataclass(frozen=True)
class Code:
    """The code of one revision, and where its runs are kept."""

    name: str
    folder: Path

    def reconcile(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this code in a process of its own."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONIOENCODING": "utf-8"}
        environment.setdefault("RECONCILE_JARS", str(TREE / "jars"))
        command = [sys.executable, "-m", "reconcile.cli", *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, encoding="utf-8", check=False
        )

    def say(self, command: str, *words: str) -> Said:
        """Run a command on the world and read what it prints; exit if it could not tell."""
        place = ["--config", str(SETTINGS), "--workspace", str(FOLDER / f"runs-{self.name}"), "--json"]
        done = self.reconcile(command, *words, *place)
        try:
            data = json.loads(done.stdout)
        except json.JSONDecodeError:
            data = None
        if data is None or (command == "run" and done.returncode not in (AGREES, DRIFT)):
            asked = " ".join((command, *words))
            sys.exit(f"{self.name}: `reconcile {asked}` exited {done.returncode}: {done.stdout}{done.stderr[-2000:]}")
        return Said(command, done.returncode, done.stdout, data)


def audited(code: Code) -> dict[str, Said]:
    """Run every contract and ask for its findings and its plan."""
    said = {}
    for run_id in CONTRACTS:
        said[f"{run_id} run"] = code.say("run", f"contracts/{run_id}.yaml", "--run-id", run_id)
        said[f"{run_id} findings"] = code.say("findings", run_id)
        said[f"{run_id} plan"] = code.say("plan", "--run", run_id)
    return said


def choose_explained(said: dict[str, Said]) -> list[tuple[str, str]]:
    """Choose runs and ids to explain, as different in contract and cause as there are."""
    chosen = {
        (run_id, each["cause"]): (run_id, each["aggregate_id"])
        for run_id in CONTRACTS
        for each in said[f"{run_id} findings"].data["findings"]
        if each["aggregate_id"] is not None
    }
    candidates = list(chosen.values())
    number = min(EXPLAINED, len(candidates))
    return [candidates[place * len(candidates) // number] for place in range(number)]


def explained(code: Code, chosen: list[tuple[str, str]]) -> dict[str, Said]:
    """Ask for the stories of ids."""
    return {f"{run_id} explain {each}": code.say("explain", run_id, each) for run_id, each in chosen}


@contextmanager
def damaged_world(aggregates: int) -> Iterator[None]:
    """Bring a world up with every fault planted; leave nothing of it but its runs."""
    tree = Code("tree", TREE)

    def lab(*words: str) -> None:
        done = tree.reconcile("lab", *words, "--dir", str(LAB))
        if done.returncode:
            sys.exit(f"`reconcile lab {words[0]}` exited {done.returncode}: {done.stderr[-2000:]}")

    lab("down", "--wipe")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    try:
        lab("up", *PORTS)
        lab("seed", "--aggregates", str(aggregates), "--seed", "2026")
        lab("fault", "all")
        settings = yaml.safe_load((FOLDER / "reconcile.yaml").read_text("utf-8"))
        del settings["control_store"]
        SETTINGS.write_text(yaml.safe_dump(settings), "utf-8")
        yield
    finally:
        lab("down", "--wipe")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out beside the world, and remove it again."""
    folder = FOLDER / "revision"
    git("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*words: str) -> str:
    """Run git in this tree; exit where it refuses."""
    done = subprocess.run(["git", *words], cwd=TREE, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        sys.exit(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def same(old: dict[str, Said], new: dict[str, Said], name: str, ignored: Collection[str]) -> bool:
    """Print what was compared and the first differences; tell whether there are none."""
    compared, differing = 0, []
    for title, said in old.items():
        before, after = said.lines(ignored), new[title].lines(ignored)
        _keep("revision", title, before)
        _keep("tree", title, after)
        compared += len(before)
        if before == after:
            continue
        differing.append(title)
        changes = list(difflib.unified_diff(before, after, f"{name} {title}", f"tree {title}", lineterm="", n=1))
        print("\n".join(changes[:SHOWN]))
        if len(changes) > SHOWN:
            print(f"… and {len(changes) - SHOWN:,} lines more")
    findings = sum(len(said.data["findings"]) for said in old.values() if said.command == "findings")
    print(f"{findings:,} findings of {name}, {compared:,} lines of {len(old)} outputs: ", end="")
    print(f"{len(differing)} outputs differ: {', '.join(differing)}" if differing else "this tree says the same")
    return not differing


def _values(data: Any, path: str, taken_out: Collection[str], ignored: Collection[str]) -> Iterator[str]:
    if path in taken_out:
        yield f"{path}: taken out"
    elif data and isinstance(data, dict):
        for key, value in data.items():
            if key not in ignored:
                yield from _values(value, f"{path}.{key}" if path else key, taken_out, ignored)
    elif data and isinstance(data, list):
        for number, value in enumerate(data):
            # By its id, so that the lines of the others stay as they are where one is missing.
            name = (value.get("aggregate_id") if isinstance(value, dict) else None) or number
            yield from _values(value, f"{path}[{name}]", taken_out, ignored)
    else:
        yield f"{path}: {json.dumps(data)}"


def _keep(side: str, title: str, lines: list[str]) -> None:
    file = FOLDER / "compared" / side / f"{title.replace(' ', '-')}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", metavar="REVISION", help="what git calls the other code")
    parser.add_argument("--aggregates", type=int, default=10_000)
    parser.add_argument("--ignore", metavar="KEY", action="append", default=[], help="may be given again")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the world goes too
    commit = git("rev-parse", "--verify", "--quiet", f"{asked.revision}^{{commit}}")
    with damaged_world(asked.aggregates), checked_out(commit) as folder:
        revision, tree = Code("revision", folder), Code("tree", TREE)
        old = audited(revision)
        chosen = choose_explained(old)
        old |= explained(revision, chosen)
        new = audited(tree) | explained(tree, chosen)
    sys.exit(0 if same(old, new, commit[:10], asked.ignore) else 1)


if __name__ == "__main__":
    main()
