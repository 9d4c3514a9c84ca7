"""Names and secrets of a process are struck out wherever they stand as words."""

from __future__ import annotations

from attnctl.bug_report.private_names import PrivateNames, private_names

ENVIRON = {
    "USER": "mallory",
    "HOME": "/home/mal.home/",
    "HOSTNAME": "secret-box.lab.example",
    "HF_TOKEN": "correct-horse-battery",
    "aws_secret_access_key": "staple/9+x",
    "MY_PASSWORD": "short",
    "EDITOR": "vi",
}
NAMES = private_names(ENVIRON, "secret-box", ("mallory", "Mallory Example"))


def test_names_come_from_the_environment_the_host_and_the_account() -> None:
    """Whole names and the first part of a host's; secrets by what their variables are called."""
    assert NAMES.users == ("Mallory Example", "mal.home", "mallory")
    assert NAMES.hosts == ("secret-box", "secret-box.lab.example")
    assert NAMES.secrets == ("correct-horse-battery", "staple/9+x")


def test_they_are_struck_out_of_every_text_and_of_no_key() -> None:
    """In sentences, lists and nested values, whatever their case; the longest first."""
    found = NAMES.without(
        {
            "mallory": ["run by Mallory", "MALLORY EXAMPLE", 5, None, True],
            "at": {"host": "http://secret-box.lab.example:80/x", "key": "a=staple/9+x;"},
            "login": "correct-horse-battery",
        }
    )
    assert found == {
        "mallory": ["run by user", "user", 5, None, True],
        "at": {"host": "http://host:80/x", "key": "a=token;"},
        "login": "token",
    }


def test_a_name_within_another_word_is_another_word() -> None:
    """Letters and digits around it make it one; underscores, dots and dashes do not."""
    names = PrivateNames(users=("ann",))
    assert names.without("cannot channel ann_lib /ann/x ann-1 ann.") == (
        "cannot channel user_lib /user/x user-1 user."
    )


def test_names_that_tell_nothing_stay() -> None:
    """An account named as a vendor, or as everybody's, must not make a report unreadable."""
    plain = private_names({"USER": "nvidia", "HOME": "/root", "LOGNAME": "me"}, "localhost", ("",))
    assert plain == PrivateNames()
    assert plain.without("nvidia root localhost me") == "nvidia root localhost me"
