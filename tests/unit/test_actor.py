"""Who asks and who approves: whether they may be one person."""

from __future__ import annotations

import os
import pwd

import pytest

from reconcile.domain.approval import REQUEST_TOPIC, SCHEDULER, Actor
from reconcile.pipeline.approval import os_user

ALICE = Actor("alice", "cli")


@pytest.mark.parametrize(
    "other",
    [ALICE, Actor("alice", "airflow"), Actor("root", "cli", "alice"), Actor("alice", "cli", "root")],
)
def test_a_shared_name_may_be_one_person(other: Actor) -> None:
    """On the machine, in Airflow, and behind sudo."""
    assert ALICE.may_be(other)
    assert other.may_be(ALICE)


@pytest.mark.parametrize("other", [SCHEDULER, REQUEST_TOPIC, Actor("bob", "cli"), Actor("root", "cli", "bob")])
def test_other_names_are_other_people(other: Actor) -> None:
    """That neither came by sudo does not make them one."""
    assert not ALICE.may_be(other)
    assert not other.may_be(ALICE)


def test_a_user_that_two_became_by_sudo_is_one() -> None:
    """Anybody can write SUDO_USER: what it says cannot make two people of one user."""
    assert Actor("service", "cli", "alice").may_be(Actor("service", "cli", "bob"))


def test_the_user_of_the_machine_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can set USER."""
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert pwd.getpwuid(os.getuid()).pw_name == os_user().name


def test_who_came_by_sudo_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the user that the process runs as."""
    monkeypatch.setenv("SUDO_USER", "alice")
    assert "alice" == os_user().sudo_user
    monkeypatch.setenv("SUDO_USER", os_user().name)
    assert os_user().sudo_user is None


def test_a_user_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is run as any user."""
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert "uid 3999999999" == os_user().name
