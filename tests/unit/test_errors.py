"""One tree of errors: drawn as it is, documented, with facts that survive a process boundary."""

import pickle
import re

import pytest

from headrace import errors
from headrace.clients.deliveries import Outgoing
from headrace.errors import BadInput, DeliveryFailed, HeadraceError, OperationFailed


def every_class(root: type[HeadraceError] = HeadraceError) -> list[type[HeadraceError]]:
    """Depth first, in the order in which they are defined."""
    return [root, *(each for child in root.__subclasses__() for each in every_class(child))]


def drawn_tree() -> list[tuple[int, str, str]]:
    """Depth, name and explanation of each line of the drawing."""
    lines = re.findall(r"^ {4}([│ ├└─]*)(\w+)  +(\S.*)$", errors.__doc__ or "", re.MULTILINE)
    return [(len(indent) // 4, name, text) for indent, name, text in lines]


def real_tree(root: type[HeadraceError] = HeadraceError, depth: int = 0) -> list[tuple[int, str]]:
    below = [each for child in root.__subclasses__() for each in real_tree(child, depth + 1)]
    return [(depth, root.__name__), *below]


def test_the_tree_in_the_docstring_is_the_real_one():
    assert [(depth, name) for depth, name, _ in drawn_tree()] == real_tree()


def test_every_error_is_explained_in_the_tree_and_in_its_class():
    assert all(text for _, _, text in drawn_tree())
    assert all(each.__doc__ for each in every_class())


def test_every_error_is_defined_in_one_place():
    assert {each.__module__ for each in every_class()} == {"headrace.errors"}


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_an_error_pickles_with_message_hint_and_facts(kind):
    error = kind("it broke", hint="mend it", port=9092, path="/x", record=Outgoing("t", b"v"))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.hint, copy.facts) == (error.message, error.hint, error.facts)
    assert str(copy) == "it broke"


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_bad_input_exits_with_two_and_everything_else_with_one(kind):
    assert kind.exit_status == (2 if issubclass(kind, BadInput) else 1)


def test_every_error_is_either_the_callers_or_the_operations():
    for kind in every_class()[1:]:
        assert issubclass(kind, BadInput) != issubclass(kind, OperationFailed)


def test_a_failed_delivery_gives_the_record_back():
    record = Outgoing("t", b"v", b"k")
    assert DeliveryFailed("no", record=record).facts["record"] is record


def test_hint_and_facts_may_be_left_out():
    error = HeadraceError("it broke")
    assert (error.hint, error.facts) == ("", {})
